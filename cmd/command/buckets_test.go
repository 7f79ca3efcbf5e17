package command

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/internal/vfs/bucket/s3test"
)

const inBucket = "s3://" + s3test.Bucket + "/"

// files are the files of a folder of the server, or of a local one, by their paths in it.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for path, content := range tree(t, vfs.OS(), folder) {
		out[strings.TrimPrefix(path, folder+"/")] = content
	}
	return out
}

// Every verb takes URLs, and writes to a bucket what it writes to a folder.
func TestCommandsWorkOnBuckets(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	var pairs []string
	for _, name := range []string{" graph", " store", " run", " out.", " arrays", " mapped", " page", " again"} {
		pairs = append(pairs, name, " "+inBucket+"d/"+name[1:])
	}
	url := strings.NewReplacer(pairs...)
	write(t, disk, "edges.csv", csvEdges)
	for _, line := range []string{generateLine, propagateLine, "verify store", "inspect store", "inspect graph",
		"plan store --model sgc", trainLine, "train store --model sgc --epochs 2 --placement storage", evaluateLine,
		predictLine, "predict --checkpoint run store -o out.csv", exportLine, "import npy arrays -o again", importCSVLine,
		"status store", "propagate graph -o store --hops 3 --operator sym,rw --chunk-rows 16 --seed 7",
		"report run -o page.html", "sample graph --sampler neighbor --fanout 3,3 --batch 20"} {
		there, here := must(t, disk, url.Replace(line)), must(t, disk, line)
		if strings.HasPrefix(line, "verify") && here.stdout != strings.ReplaceAll(there.stdout, inBucket+"d/", "") {
			t.Errorf("%s: %s, not %s", line, there.stdout, here.stdout)
		}
	}
	for _, name := range []string{"graph", "store", "arrays", "mapped"} {
		if got, want := files(t, filepath.Join(server.Folder, "d", name)), files(t, name); !maps.Equal(got, want) {
			t.Errorf("%s: %d files, want %d with the same bytes", name, len(got), len(want))
		}
	}
	for _, name := range []string{"out.parquet", "out.csv"} {
		if content(t, disk, filepath.Join(server.Folder, "d", name)) != content(t, disk, name) {
			t.Errorf("%s differs", name)
		}
	}
	if left := tree(t, disk, os.Getenv("HOPFEED_STATE_DIR")); len(left) != 1 { // the machine's name
		t.Errorf("%d files are left in the state folder", len(left))
	}
	for _, line := range []string{propagateLine + " --force", exportLine + " --force", generateLine} {
		if o := hopfeed(t, disk, url.Replace(line)); o.code != exitUsage || !strings.Contains(o.stderr, "exists") {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
	// Damage in a bucket is found, whatever the cache has, and repaired.
	part := filepath.Join(server.Folder, "d/store/features/sym/hop-1/part-00000.arrow")
	b, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	write(t, disk, part, string(b))
	if o := hopfeed(t, disk, url.Replace("verify store")); o.code != exitCorrupt {
		t.Errorf("verify: status %d\n%s", o.code, o.stderr)
	}
	must(t, disk, url.Replace("repair store --graph graph"))
	must(t, disk, url.Replace("verify store"))
	// A server that the URL names.
	os.Unsetenv("AWS_ENDPOINT_URL")
	at := "?endpoint=" + server.URL
	must(t, disk, strings.Replace(propagateLine, " store", " "+inBucket+"d/named"+at, 1))
	must(t, disk, "predict --checkpoint run "+inBucket+"d/named"+at+" -o "+inBucket+"d/named.csv"+at)
	must(t, disk, "verify "+inBucket+"d/named"+at)
	must(t, disk, strings.Replace(trainLine, " run", " "+inBucket+"d/named-run"+at, 1))
	for _, name := range []string{"named/manifest.json", "named.csv", "named-run"} {
		if _, err := os.Stat(filepath.Join(server.Folder, "d", name)); err != nil {
			t.Error(err)
		}
	}
}

// A typed graph in a bucket, and its store, which one process or tasks make, have the bytes of local ones.
func TestTypedGraphsAndTheirStoresMayBeInBuckets(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	writeTypedArrays(t, vfs.OS())
	for _, line := range []string{"import npy arrays -o @there --missing-features ones",
		"propagate @there -o @store --hops 2 --label-hops 2 --max-time 1h",
		"propagate @there -o @subsets --relations-subsets 2",
		"propagate @there -o @less --hops 1", "propagate @there -o @less --hops 2", "verify @there", "verify @store",
		"train @store --model sehgnn --hidden 8 --epochs 1", "inspect @there",
		"train @there --model rgcn --hidden 4 --epochs 1 --run @run", "predict --checkpoint @run @there -o @out.csv"} {
		must(t, vfs.OS(), strings.ReplaceAll(line, "@", ""))
		must(t, vfs.OS(), strings.ReplaceAll(line, "@", inBucket))
	}
	tasks := "propagate " + inBucket + "there -o " + inBucket + "tasks --hops 2 --label-hops 2 --tasks 2"
	for _, task := range strings.Fields("rows cut-0 cut-1 hops-0 hops-1 write-0 write-1 publish") {
		must(t, vfs.OS(), tasks+" --task "+task)
	}
	for there, here := range map[string]string{"there": "there", "store": "store", "subsets": "subsets", "less": "less",
		"tasks": "store"} {
		if got, want := files(t, filepath.Join(server.Folder, there)), files(t, here); !maps.Equal(got, want) {
			t.Errorf("%s: %d files, want %d with the same bytes", there, len(got), len(want))
		}
	}
	if left := tree(t, vfs.OS(), os.Getenv("HOPFEED_STATE_DIR")); len(left) != 1 { // the machine's name
		t.Errorf("%d files are left in the state folder", len(left))
	}
}

// A graph in a bucket is updated, and its store made from the earlier one, to the bytes of local ones.
func TestGraphsInBucketsChange(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	write(t, vfs.OS(), "new.csv", "1,2\n3,4\n5,6\n")
	for _, line := range []string{generateLine, propagateLine, "train @store --model sgc --epochs 2 --run @run",
		"update @graph --edges new.csv -o @graph2", "propagate @graph2 -o @store2 --from @store --from-graph @graph",
		"verify @graph2", "verify @store2", "predict --checkpoint @run @store2 --changed-since @store -o @out.csv"} {
		line = strings.NewReplacer(" graph", " @graph", " store", " @store").Replace(line)
		must(t, vfs.OS(), strings.ReplaceAll(line, "@", ""))
		must(t, vfs.OS(), strings.ReplaceAll(line, "@", inBucket))
	}
	for _, name := range []string{"graph2", "store2"} {
		if got, want := files(t, filepath.Join(server.Folder, name)), files(t, name); !maps.Equal(got, want) {
			t.Errorf("%s: %d files, want %d with the same bytes", name, len(got), len(want))
		}
	}
	if content(t, vfs.OS(), filepath.Join(server.Folder, "out.csv")) != content(t, vfs.OS(), "out.csv") {
		t.Error("what has changed is predicted otherwise")
	}
}

// So is a typed graph, and exported.
func TestTypedGraphsInBucketsChange(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	if err := disk.MkdirAll("new"); err != nil {
		t.Fatal(err)
	}
	writeTypedArrays(t, disk)
	write(t, disk, "new/venue__paper.csv", "source,destination\n3,80\n")
	for _, line := range []string{"import npy arrays -o @graph", "update @graph --edges new -o @graph2", "verify @graph2",
		"export npy @graph2 -o @out"} {
		must(t, disk, strings.ReplaceAll(line, "@", ""))
		must(t, disk, strings.ReplaceAll(line, "@", inBucket))
	}
	for _, name := range []string{"graph2", "out"} {
		if got, want := files(t, filepath.Join(server.Folder, name)), files(t, name); !maps.Equal(got, want) {
			t.Errorf("%s: %d files, want %d with the same bytes", name, len(got), len(want))
		}
	}
	if left := tree(t, disk, os.Getenv("HOPFEED_STATE_DIR")); len(left) != 1 { // the machine's name
		t.Errorf("%d files are left in the state folder", len(left))
	}
	if err := os.RemoveAll(filepath.Join(server.Folder, "out")); err != nil {
		t.Fatal(err)
	}
	must(t, disk, "export npy "+inBucket+"graph2 -o "+inBucket+"out")
	must(t, disk, "propagate "+inBucket+"graph2 -o "+inBucket+"store --hops 1")
	part := filepath.Join(server.Folder, "store/features/rw+paper-venue/hop-1/part-00000.arrow")
	sound := content(t, disk, part)
	write(t, disk, part, sound[:5000]+"x"+sound[5001:])
	must(t, disk, "repair "+inBucket+"store --graph "+inBucket+"graph2")
	if content(t, disk, part) != sound {
		t.Error("the store is another once it is repaired")
	}
}

// A job that is killed at any moment goes on, or starts anew, and ends with the same bytes; status tells that it is
// there, on another machine too.
func TestAKilledJobOnABucketGoesOn(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	must(t, disk, generateLine)
	must(t, disk, propagateLine)
	want := files(t, "store")
	url := strings.Replace(propagateLine, " store", " "+inBucket+"store", 1)
	for at := 1; ; at += 5 {
		kill := exec.Command(os.Args[0], strings.Fields(url)...)
		kill.Env = append(os.Environ(), asCommand+"=0")
		puts := 0
		server.Fail(func(r *http.Request) s3test.Fault {
			if r.Method == http.MethodPut || r.Method == http.MethodDelete {
				if puts++; puts == at {
					_ = kill.Process.Kill()
					return s3test.Stall
				}
			}
			return s3test.None
		})
		err := kill.Run()
		server.Fail(nil)
		if err == nil {
			break
		}
		o := hopfeed(t, disk, "status "+inBucket+"store")
		if at > 3 && !strings.Contains(o.stdout, "interrupted") && !strings.Contains(o.stdout, "complete") {
			t.Fatalf("killed at request %d: %s", at, o.stdout)
		}
		if at%2 == 0 { // on another machine, once the lock of the killed one has ended
			lock := filepath.Join(server.Folder, "store/.job/lock")
			_, complete := os.Stat(filepath.Join(server.Folder, "store/manifest.json"))
			if _, err := os.Stat(lock); err == nil {
				if o := otherMachine(t, url); complete != nil && (o.code != exitFailed || !strings.Contains(o.stderr,
					"machine")) {
					t.Errorf("another machine at once: status %d, %s", o.code, o.stderr)
				}
				before := time.Now().Add(-time.Hour)
				if err := os.Chtimes(lock, before, before); err != nil {
					t.Fatal(err)
				}
			}
			if o := otherMachine(t, url); o.code != exitDone {
				t.Fatalf("another machine goes on: status %d, %s", o.code, o.stderr)
			}
		} else {
			must(t, disk, url)
		}
		if got := files(t, filepath.Join(server.Folder, "store")); !maps.Equal(got, want) {
			t.Fatalf("killed at request %d: the store has %v, want %v with the same bytes", at, slices.Sorted(maps.Keys(got)),
				slices.Sorted(maps.Keys(want)))
		}
		if err := os.RemoveAll(filepath.Join(server.Folder, "store")); err != nil {
			t.Fatal(err)
		}
	}
}

// otherMachine runs a command line with another state folder.
func otherMachine(t *testing.T, line string) outcome {
	before := os.Getenv("HOPFEED_STATE_DIR")
	defer os.Setenv("HOPFEED_STATE_DIR", before)
	os.Setenv("HOPFEED_STATE_DIR", t.TempDir())
	return hopfeed(t, vfs.OS(), line)
}

// Training from a bucket while the network fails, and answers wrong bytes, gives the same losses.
func TestTrainingFromAFailingBucketLosesNothing(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	must(t, disk, "generate sbm -o graph --nodes 3000 --edges 15000 --features 16 --classes 3 --seed 7")
	must(t, disk, "propagate graph -o store --hops 2 --operator sym --chunk-rows 100")
	must(t, disk, "propagate graph -o "+inBucket+"store --hops 2 --operator sym --chunk-rows 100")
	line := "train store --model sgc --epochs 3 --placement storage --batch 200 --seed 3 --quiet --run "
	must(t, disk, line+"here")
	n := 0
	server.Fail(func(r *http.Request) s3test.Fault {
		if r.Method != http.MethodGet || r.Header.Get("Range") == "" {
			return s3test.None
		}
		n++
		return map[int]s3test.Fault{3: s3test.Error, 5: s3test.Wrong, 7: s3test.Short, 9: s3test.Slow,
			11: s3test.Reset, 13: s3test.Wrong}[n%17]
	})
	must(t, disk, strings.Replace(line, " store", " "+inBucket+"store", 1)+"there")
	server.Fail(nil)
	parameters := func(run string) map[string]string {
		found := files(t, run)
		maps.DeleteFunc(found, func(name, _ string) bool { return !strings.HasPrefix(name, "parameters-") })
		return found
	}
	if here, there := parameters("here"), parameters("there"); len(here) == 0 || !maps.Equal(here, there) {
		t.Errorf("the parameters of %d files differ", len(here))
	}
	if n < 40 {
		t.Errorf("only %d requests", n)
	}
}

// Tasks of several processes share a bucket; each is run twice at a time.
func TestTasksMakeAStoreInABucket(t *testing.T) {
	server := s3test.Start(t)
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	must(t, disk, generateLine)
	must(t, disk, propagateLine)
	line := strings.ReplaceAll(propagateLine, "-o store", "-o "+inBucket+"d/store") + " --tasks 3"
	for _, kind := range []string{"rows", "cut-", "hops-", "write-", "publish"} {
		var group sync.WaitGroup
		for i := range 6 {
			name := kind
			if strings.HasSuffix(kind, "-") {
				name += strconv.Itoa(i % 3)
			}
			group.Go(func() { must(t, disk, line+" --task "+name) })
		}
		group.Wait()
	}
	if got, want := files(t, filepath.Join(server.Folder, "d/store")), files(t, "store"); !maps.Equal(got, want) {
		t.Errorf("%q, want %q with the same bytes", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
