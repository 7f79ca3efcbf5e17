package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/parallel"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/internal/vfs/bucket/s3test"
)

const base = "s3://" + s3test.Bucket

// quick repeats requests without long pauses. A busy machine is no stall.
var quick = Retries{Most: 6, Pause: time.Millisecond, Limit: 10 * time.Millisecond, Stall: time.Minute}

// givingUp is quick, and gives up requests that a server lets wait, if this is its fault.
func givingUp(fault s3test.Fault, after time.Duration) Retries {
	r := quick
	if fault == s3test.Stall {
		r.Stall = after
	}
	return r
}

func open(t *testing.T, o Options) *FS {
	if o.Retries == (Retries{}) {
		o.Retries = quick
	}
	return New(vfs.OS(), o)
}

func put(t *testing.T, f vfs.FS, path string, content []byte) {
	t.Helper()
	if err := vfs.WriteFile(f, path, content); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, f vfs.FS, path string, want []byte) {
	t.Helper()
	got, err := vfs.ReadFile(f, path, 1<<30)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes, want %d; %v", path, len(got), len(want), err)
	}
}

func names(t *testing.T, f vfs.FS, path string) (out []string) {
	t.Helper()
	entries, err := f.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		out = append(out, name)
	}
	return out
}

func random(bytes int) []byte {
	b := make([]byte, bytes)
	r := rand.NewChaCha8([32]byte{byte(bytes)})
	_, _ = r.Read(b)
	return b
}

func TestURLsAreReadHoweverTheirSlashesAre(t *testing.T) {
	for _, c := range []struct{ url, scheme, bucket, key, endpoint string }{
		{"s3://b/a/c", "s3", "b", "a/c", ""},
		{"s3:/b/a//c/", "s3", "b", "a/c", ""},
		{"s3:/b", "s3", "b", "", ""},
		{"s3://b/a?endpoint=http://127.0.0.1:90/c/d", "s3", "b", "a/c/d", "http://127.0.0.1:90"},
		{"s3:/b?endpoint=http:/127.0.0.1:90/c", "s3", "b", "c", "http://127.0.0.1:90"},
		{"s3:/b?endpoint=http:127.0.0.1:90/c", "s3", "b", "c", "http://127.0.0.1:90"},
		{"s3://b/a?endpoint=x.org&region=q/c", "s3", "b", "a/c", "https://x.org"},
	} {
		at, ok, err := parse(c.url)
		if err != nil || !ok || at.scheme != c.scheme || at.bucket != c.bucket || at.key != c.key {
			t.Errorf("%s: %+v, %t, %v", c.url, at, ok, err)
		}
		if u, err := at.endpoint(); err != nil || c.endpoint != "" && u.String() != c.endpoint {
			t.Errorf("%s: endpoint %v, %v", c.url, u, err)
		}
	}
	for url, want := range map[string]string{"s3://b?ends=1": "ends", "s3:///": "no bucket", "hdfs:/b/c": "want s3://"} {
		if _, _, err := parse(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if at, ok, err := parse("file:///tmp/x"); ok || at.key != "/tmp/x" || err != nil {
		t.Errorf("%+v, %v", at, err)
	}
}

func TestObjectsAreFiles(t *testing.T) {
	server := s3test.Start(t)
	f := open(t, Options{})
	content := random(3*vfs.PageBytes + 17)
	put(t, f, base+"/d/e/x.arrow", content)
	put(t, f, base+"/d/manifest.json", []byte("{}"))
	wantContent(t, f, "s3:/bucket/d/e/x.arrow", content)
	wantContent(t, f, base+"?endpoint="+server.Direct+"/d/e/x.arrow", content)
	if got, err := os.ReadFile(filepath.Join(server.Folder, "d/e/x.arrow")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("in the folder of the server: %v", err)
	}
	if got := names(t, f, base+"/d"); !slices.Equal(got, []string{"e/", "manifest.json"}) {
		t.Errorf("%q", got)
	}
	for _, path := range []string{base, base + "/d", base + "/d/e"} {
		if info, err := f.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if info, err := f.Stat(base + "/d/e/x.arrow"); err != nil || info.Size() != int64(len(content)) || info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	for _, path := range []string{base + "/d/none", base + "/none/d", base + "/d/e/x"} {
		if _, err := f.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := f.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := f.Remove(base + "/d"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("a folder with files: %v", err)
	}
	if err := f.Rename(base+"/d/manifest.json", base+"/d/manifest.json.tmp"); err != nil {
		t.Error(err)
	}
	if got := names(t, f, base+"/d"); !slices.Equal(got, []string{"e/"}) {
		t.Errorf("renamed: %q", got)
	}
	for _, path := range []string{"/d/e/x.arrow", "/d/e", "/d"} {
		if err := f.Remove(base + path); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.Stat(base + "/d"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty folder: %v", err)
	}
	inQuery := strings.Replace(server.Direct, "//", "", 1)
	for _, url := range []string{"/d?endpoint=" + server.Direct + "/e", "/d/e?endpoint=" + server.Direct,
		"?endpoint=" + server.Direct + "/d/e"} {
		if at, err := f.Resolve(base + url); err != nil || at != "s3:/bucket?endpoint="+inQuery+"/d/e" {
			t.Errorf("%s: %s, %v", url, at, err)
		}
	}
	if _, err := f.Open("s3://no-such-bucket/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bucket: %v", err)
	}
}

// An open file keeps its version, and says so when there is another one.
func TestAReplacedObjectIsNotRead(t *testing.T) {
	s3test.Start(t)
	f := open(t, Options{CacheBytes: NoCache})
	put(t, f, base+"/x", random(100))
	file, err := f.Open(base + "/x")
	if err != nil {
		t.Fatal(err)
	}
	put(t, f, base+"/x", random(101))
	if _, err := file.ReadAt(make([]byte, 10), 0); !errors.Is(err, errReplaced) {
		t.Errorf("%v", err)
	}
}

func TestAFileAppearsWhenItIsCommitted(t *testing.T) {
	s3test.Start(t)
	f := open(t, Options{})
	p, err := f.Create(base + "/d/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p, "half"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat(base + "/d/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	other := open(t, Options{}) // another process of the machine
	if got := names(t, other, base+"/d"); len(got) > 0 {
		t.Errorf("what is not committed: %q", got)
	}
	wantContent(t, other, base+"/d/x.tmp", []byte("half"))
	if err := p.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, f, base+"/d"); !slices.Equal(got, []string{"x"}) {
		t.Errorf("%q", got)
	}
	if p, err = f.Create(base + "/d/y"); err == nil {
		err = p.Abort()
	}
	if got := names(t, f, base+"/d"); err != nil || !slices.Equal(got, []string{"x"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestScratchFilesStayOnTheLocalDisk(t *testing.T) {
	server := s3test.Start(t)
	f := open(t, Options{})
	s, err := folder.OpenScratch(f, base+"/graph.scratch")
	if err != nil {
		t.Fatal(err)
	}
	put(t, f, s.Path("edges"), []byte("edges"))
	if server.Requests() != 0 {
		t.Errorf("%d requests", server.Requests())
	}
	if got := names(t, f, base); !slices.Equal(got, []string{"graph.scratch/"}) {
		t.Errorf("%q", got)
	}
	if free, err := f.FreeBytes(base + "/d/.job/scratch"); err != nil || free >= unlimited {
		t.Errorf("%d, %v", free, err)
	}
	if free, err := f.FreeBytes(base + "/d"); err != nil || free != unlimited {
		t.Errorf("%d, %v", free, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := names(t, f, base); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
}

func TestLargeFilesAreSentInParts(t *testing.T) {
	server := s3test.Start(t)
	f := open(t, Options{CacheBytes: NoCache})
	content := random(2*partBytes + 12345)
	server.Fail(func(r *http.Request) s3test.Fault { // each part once
		if n := r.URL.Query().Get("partNumber"); n != "" && r.Header.Get("X-Amz-Date") != "" && once(n) {
			return s3test.Damaged
		}
		if r.Method == http.MethodPost && r.URL.Query().Get("uploadId") != "" && once("complete") {
			return s3test.Late
		}
		return s3test.None
	})
	put(t, f, base+"/large", content)
	server.Fail(nil)
	wantContent(t, f, base+"/large", content)
	if n := f.Traffic().Repeated; n < 4 {
		t.Errorf("%d requests were repeated", n)
	}
	if n, err := f.Uploads(base); n != 0 || err != nil {
		t.Errorf("%d uploads are left, %v", n, err)
	}
}

// outrun is a bucket in which another process finishes an object while its parts are sent.
type outrun struct {
	store
	once      sync.Once
	finish    func()
	completed int
}

func (o *outrun) part(ctx context.Context, key, upload string, number int, body *io.SectionReader) (string, error) {
	tag, err := o.store.part(ctx, key, upload, number, body)
	o.once.Do(o.finish)
	return tag, err
}

func (o *outrun) complete(ctx context.Context, key, upload string, tags []string, moved func()) error {
	o.completed++
	return o.store.complete(ctx, key, upload, tags, moved)
}

func TestAnObjectThatAnotherProcessHasFinishedIsNotReplaced(t *testing.T) {
	s3test.Start(t)
	concurrent := func() *FS { return open(t, Options{CacheBytes: NoCache}).Concurrent().(*FS) }
	f, other, content := concurrent(), concurrent(), random(partBytes+1)
	at, err := f.find("test", base+"/large")
	if err != nil {
		t.Fatal(err)
	}
	s := &outrun{store: at.store, finish: func() { put(t, other, base+"/large", content) }}
	at.remote.store = s
	put(t, f, base+"/large", content)
	wantContent(t, f, base+"/large", content)
	if n, err := f.Uploads(base); s.completed > 0 || n > 0 || err != nil {
		t.Errorf("replaced %d times, %d uploads are left, %v", s.completed, n, err)
	}
}

// Of two writes at a time a server may refuse both.
func TestARefusedObjectThatNoOtherProcessHasWrittenIsSentAgain(t *testing.T) {
	server := s3test.Start(t)
	f, writes := open(t, Options{CacheBytes: NoCache}).Concurrent().(*FS), 0
	server.Fail(func(r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut {
			if writes++; writes < 3 {
				return s3test.Conflict
			}
		}
		return s3test.None
	})
	content := random(1000)
	put(t, f, base+"/small", content)
	wantContent(t, f, base+"/small", content)
	if writes != 3 {
		t.Errorf("sent %d times", writes)
	}
}

var seen sync.Map

// once is true the first time that a test asks for a name.
func once(name string) bool {
	_, before := seen.LoadOrStore(name, true)
	return !before
}

// What a killed process was sending is aborted when the next one has the lock.
func TestUploadsOfAKilledJobAreAborted(t *testing.T) {
	s3test.Start(t)
	f := open(t, Options{})
	at, err := f.find("test", base+"/d/part")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.store.begin(clean(), at.key); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Uploads(base + "/d"); n != 1 || err != nil {
		t.Fatalf("%d uploads, %v", n, err)
	}
	lock, err := folder.Lock(f, base+"/d/.job")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Uploads(base + "/d"); n != 0 || err != nil {
		t.Errorf("%d uploads are left, %v", n, err)
	}
	if err := errors.Join(folder.Remove(f, base+"/d/.job"), lock.Close()); err != nil {
		t.Error(err)
	}
	if got := names(t, f, base); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
}

func TestALockIsOfOneMachineAndProcess(t *testing.T) {
	s3test.Start(t)
	f := open(t, Options{})
	other := open(t, Options{StateDir: t.TempDir()}) // another machine
	path := base + "/d/.job/lock"
	lock, err := f.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*FS{f, open(t, Options{}), other} {
		if _, err := g.Lock(path); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("locked twice: %v", err)
		}
		if locked, err := g.Locked(path); !locked || err != nil {
			t.Errorf("%t, %v", locked, err)
		}
		if state, err := vfs.StateOfLock(g, path); state != vfs.Marked || err != nil {
			t.Errorf("%v, %v", state, err)
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if locked, err := other.Locked(path); locked || err != nil {
		t.Errorf("given back: %t, %v", locked, err)
	}
	if lock, err = other.Lock(path); err != nil {
		t.Fatal(err)
	}
	// Its machine takes over what it had when it was killed; another one cannot yet.
	killed := lock.(*lease)
	killed.end()
	if err := killed.local.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Lock(path); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("taken from a machine that may be alive: %v", err)
	}
	again := open(t, Options{StateDir: other.o.StateDir})
	if lock, err = again.Lock(path); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Remove(path), lock.Close()); err != nil {
		t.Error(err)
	}
	put(t, f, base+"/mine.lock", []byte("mine"))
	if _, err := f.Lock(base + "/mine.lock"); !errors.Is(err, vfs.ErrNotLock) {
		t.Errorf("a file of the user's: %v", err)
	}
}

// A process whose lock another machine has taken writes nothing more.
func TestWhoHasLostALockWritesNothing(t *testing.T) {
	s3test.Start(t)
	f := open(t, Options{})
	lock, err := f.Lock(base + "/d/.job/lock")
	if err != nil {
		t.Fatal(err)
	}
	lock.(*lease).lost.Store(true)
	if err := vfs.WriteFile(f, base+"/d/manifest.json", []byte("{}")); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("%v", err)
	}
	put(t, f, base+"/e/manifest.json", []byte("{}"))
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadsGoOnAfterFaults(t *testing.T) {
	server := s3test.Start(t)
	content := random(5<<20 + 3)
	put(t, open(t, Options{}), base+"/x", content)
	for name, fault := range map[string]s3test.Fault{"500": s3test.Error, "503": s3test.Slow, "resets": s3test.Reset,
		"stalls": s3test.Stall, "short bodies": s3test.Short, "expired credentials": s3test.Expired} {
		t.Run(name, func(t *testing.T) {
			f := open(t, Options{CacheBytes: NoCache, Retries: givingUp(fault, time.Second)})
			left := 1
			server.Fail(func(r *http.Request) s3test.Fault {
				if r.Method == http.MethodGet && left > 0 {
					left--
					return fault
				}
				return s3test.None
			})
			defer server.Fail(nil)
			wantContent(t, f, base+"/x", content)
			// The client itself repeats requests on a connection that was open before.
			if n := f.Traffic().Repeated; n != 1 && !(n == 0 && fault == s3test.Reset) {
				t.Errorf("%+v", f.Traffic())
			}
		})
	}
}

// Retries are bounded, told, and end with what the server said.
func TestAServerThatKeepsFailingIsAnError(t *testing.T) {
	server := s3test.Start(t)
	put(t, open(t, Options{}), base+"/x", random(100))
	for fault, want := range map[s3test.Fault]string{s3test.Error: "InternalError", s3test.Slow: "SlowDown",
		s3test.Stall: errStalled.Error(), s3test.Expired: errExpired.Error(), s3test.Short: "the answer ends after"} {
		var mu sync.Mutex
		var notes []string
		f := open(t, Options{CacheBytes: NoCache, Retries: givingUp(fault, 200*time.Millisecond), Note: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			notes = append(notes, text)
		}})
		file, err := f.Open(base + "/x")
		if err != nil {
			t.Fatal(err)
		}
		server.Fail(func(r *http.Request) s3test.Fault { return fault })
		before := server.Requests()
		_, err = file.ReadAt(make([]byte, 100), 0)
		server.Fail(nil)
		made := server.Requests() - before
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), base+"/x") {
			t.Errorf("%v: %v", fault, err)
		}
		if most := map[bool]int{true: 2, false: quick.Most}[fault == s3test.Expired]; made != most {
			t.Errorf("%v: %d requests, want %d", fault, made, most)
		}
		if fault != s3test.Expired && len(notes) == 0 {
			t.Errorf("%v: nothing was told", fault)
		}
	}
}

func TestTheSizeOfTheCacheComesFromOptionsOrTheEnvironment(t *testing.T) {
	s3test.Start(t)
	for _, c := range []struct {
		bytes int64
		named string // HOPFEED_CACHE_SIZE
		want  units.Bytes
		note  string
	}{
		{CacheOf(1 << 20), "3 MiB", 1 << 20, ""}, {0, "3 MiB", 3 << 20, ""}, {CacheOf(0), "3 MiB", 0, ""}, {0, "0", 0, ""},
		{0, "3 apples", 0, "HOPFEED_CACHE_SIZE"},
	} {
		t.Setenv("HOPFEED_CACHE_SIZE", c.named)
		note := ""
		f := open(t, Options{CacheDir: t.TempDir(), CacheBytes: c.bytes, Note: func(text string) { note += text }})
		if _, limit, _ := f.Cache(); limit != c.want || !strings.Contains(note, c.note) || (c.note == "") != (note == "") {
			t.Errorf("%d, %s: a cache of %v (%q), want %v", c.bytes, c.named, limit, note, c.want)
		}
	}
}

func TestTheCacheReadsWhatTheBucketHas(t *testing.T) {
	server := s3test.Start(t)
	content := random(1<<20 + 1234)
	put(t, open(t, Options{}), base+"/x.arrow", content)
	dir := t.TempDir()
	f := open(t, Options{CacheDir: dir, CacheBytes: 16 << 20})
	file, err := f.Open(base + "/x.arrow")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	check := func(times int) {
		t.Helper()
		for range times {
			off := r.IntN(len(content))
			n := min(1+r.IntN(100_000), len(content)-off)
			p := make([]byte, n)
			if _, err := file.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, content[off:off+n]) {
				t.Fatalf("%d bytes at %d: %v", n, off, err)
			}
		}
	}
	check(50)
	whole := vfs.AlignedBytes(len(content)+10, vfs.PageBytes)
	if n, err := file.ReadAt(whole, 0); n != len(content) || err != io.EOF || !bytes.Equal(whole[:n], content) {
		t.Fatalf("%d, %v", n, err)
	}
	before := server.Requests()
	check(50)
	other := open(t, Options{CacheDir: dir, CacheBytes: 16 << 20})
	wantContent(t, other, base+"/x.arrow", content)
	if n := server.Requests() - before; n != 1 { // that opens it
		t.Errorf("%d requests, though all is in the cache", n)
	}
	// Damage of the cache is found, and read again from the bucket.
	files, _ := filepath.Glob(filepath.Join(dir, "*"+pagesSuffix))
	if len(files) != 1 {
		t.Fatal(files)
	}
	damaged, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := damaged.WriteAt([]byte("damage"), 5000); err != nil {
		t.Fatal(err)
	}
	damaged.Close()
	wantContent(t, other, base+"/x.arrow", content)
	// It may be removed at any time.
	for _, suffix := range []string{pagesSuffix, sumsSuffix} {
		if err := os.Remove(strings.TrimSuffix(files[0], pagesSuffix) + suffix); err != nil {
			t.Fatal(err)
		}
	}
	check(50)
	wantContent(t, other, base+"/x.arrow", content)
}

func TestTheCacheStaysWithinItsSize(t *testing.T) {
	s3test.Start(t)
	const limit = 4 << 20
	f := open(t, Options{CacheDir: t.TempDir(), CacheBytes: limit})
	contents := map[string][]byte{}
	for i := range 6 {
		path := fmt.Sprintf("%s/%d.arrow", base, i)
		contents[path] = random(1<<20 + i)
		put(t, f, path, contents[path])
	}
	for range 2 {
		for path, content := range contents {
			wantContent(t, f, path, content)
			if _, _, used := f.Cache(); used > limit+limit/32 {
				t.Errorf("%v", used)
			}
		}
	}
	for path, content := range contents { // of the last one, all is there
		wantContent(t, f, path, content)
		before := f.Traffic().CachedBytes
		wantContent(t, f, path, content)
		if got := f.Traffic().CachedBytes - before; got != int64(len(content)) {
			t.Errorf("%s: %d bytes came from the cache", path, got)
		}
		break
	}
}

// Pages are read and written by many at a time, while files are dropped.
func TestTheCacheIsSharedByManyReaders(t *testing.T) {
	s3test.Start(t)
	content := random(2 << 20)
	put(t, open(t, Options{}), base+"/x.arrow", content)
	dir := t.TempDir()
	var wait sync.WaitGroup
	for k := range 4 {
		f := open(t, Options{CacheDir: dir, CacheBytes: int64(1+k) << 20})
		file, err := f.Open(base + "/x.arrow")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			wait.Go(func() {
				r := rand.New(rand.NewPCG(uint64(k), uint64(i)))
				for range 30 {
					off := r.IntN(len(content) - 1)
					p := make([]byte, min(200_000, len(content)-off))
					if _, err := file.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, content[off:off+len(p)]) {
						t.Errorf("%d bytes at %d: %v", len(p), off, err)
					}
					if r.IntN(5) == 0 {
						vfs.Doubt(file, int64(off), int64(len(p)))
					}
				}
			})
		}
	}
	wait.Wait()
}

// BenchmarkRangedReads reads 1 MiB ranges of a file of 256 MiB in random order, 64 at a time: by a plain loop of GETs
// with signed URLs, by this package without a cache, with an empty one, and with a full one beside the file itself.
func BenchmarkRangedReads(b *testing.B) {
	server := s3test.Start(b)
	const size, length, readers = 256 << 20, 1 << 20, 64
	f := New(vfs.OS(), Options{CacheBytes: NoCache})
	if err := vfs.WriteFile(f, base+"/x.arrow", random(size)); err != nil {
		b.Fatal(err)
	}
	b.Setenv("AWS_ENDPOINT_URL", server.Direct)
	direct := base + "/x.arrow"
	order := rand.New(rand.NewPCG(1, 1)).Perm(size / length)
	read := func(b *testing.B, each func(p []byte, off int64) error) {
		b.SetBytes(size)
		err := parallel.For(b.Context(), readers, int64(len(order)), 1, func(i, _ int64) error {
			p := buffers.Get().(*[]byte)
			defer buffers.Put(p)
			return each(*p, int64(order[i])*length)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	open := func(b *testing.B, o Options) vfs.File {
		file, err := New(vfs.OS(), o).Open(direct)
		if err != nil {
			b.Fatal(err)
		}
		return file
	}
	readAt := func(file vfs.File) func(p []byte, off int64) error {
		return func(p []byte, off int64) error { _, err := file.ReadAt(p, off); return err }
	}
	b.Run("plain", func(b *testing.B) {
		opened, err := openS3(b.Context(), location{scheme: "s3", bucket: s3test.Bucket})
		if err != nil {
			b.Fatal(err)
		}
		url, err := opened.(*s3).core.PresignedGetObject(b.Context(), s3test.Bucket, "x.arrow", time.Hour, nil)
		if err != nil {
			b.Fatal(err)
		}
		client := &http.Client{Transport: transport()}
		for range b.N {
			read(b, func(p []byte, off int64) error {
				r, err := http.NewRequest(http.MethodGet, url.String(), nil)
				if err != nil {
					return err
				}
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+length-1))
				answer, err := client.Do(r)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				_, err = io.ReadFull(answer.Body, p)
				return err
			})
		}
	})
	b.Run("bucket", func(b *testing.B) {
		file := open(b, Options{CacheBytes: NoCache})
		for range b.N {
			read(b, readAt(file))
		}
	})
	b.Run("cold", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			file := open(b, Options{CacheDir: b.TempDir(), CacheBytes: 1 << 30})
			b.StartTimer()
			read(b, readAt(file))
		}
	})
	b.Run("warm", func(b *testing.B) {
		file := open(b, Options{CacheDir: b.TempDir(), CacheBytes: 1 << 30})
		read(b, readAt(file))
		syscall.Sync() // else the first direct reads wait until what was just kept is on the disk
		for b.Loop() {
			read(b, readAt(file))
		}
	})
	b.Run("local", func(b *testing.B) {
		file, err := vfs.OS().(vfs.Directer).OpenDirect(filepath.Join(server.Folder, "x.arrow"))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			read(b, readAt(file))
		}
	})
}

var buffers = sync.Pool{New: func() any { p := vfs.AlignedBytes(1<<20, vfs.PageBytes); return &p }}

func TestALocalFileIsSharedAsASecondName(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "other")
	f := New(vfs.OS(), Options{CacheBytes: NoCache})
	if err := errors.Join(os.WriteFile(one, []byte("bytes"), 0o666), vfs.Share(f, one, "file://"+other)); err != nil {
		t.Fatal(err)
	}
	a, err := os.Stat(one)
	b, otherErr := os.Stat(other)
	if err := errors.Join(err, otherErr); err != nil || !os.SameFile(a, b) {
		t.Errorf("%v: it is a copy", err)
	}
	if err := f.Link(one, "s3://none/other"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a name in a bucket: %v", err)
	}
}
