package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// Commands follow an output that is a symbolic link, refuse one that leads nowhere, and remove no link, nor
// the folder that it leads to, whether they succeed or fail.
func TestOutputsThatAreLinksAreFollowed(t *testing.T) {
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	const tuneLine = "tune store --model sgc --epochs 1 --budget 1 --space space.yaml -o link"
	for _, line := range []string{
		generateLine, exportLine, "propagate graph -o store --hops 1 --chunk-rows 16",
		"train store --model sgc --epochs 1 --run run",
	} {
		must(t, disk, line)
	}
	write(t, disk, "space.yaml", "lr: [0.1]\n")
	write(t, disk, "edges.csv", csvEdges)
	write(t, disk, "bad.csv", "0,1\n1\n")
	for _, c := range []struct {
		line string
		file bool // the output is one
		code int
	}{
		{"generate sbm -o link --nodes 20 --edges 40", false, exitDone},
		{"import csv edges.csv -o link --ids map", false, exitDone},
		{"import csv bad.csv -o link", false, exitCorrupt},
		{"import npy nothing -o link", false, exitFailed},
		{"propagate graph -o link --hops 1", false, exitDone},
		{"propagate graph -o link --hops 1 --operator nothing", false, exitUsage},
		{"export npy store -o link", false, exitDone},
		{"export npy nothing -o link", false, exitFailed},
		{"train store --model sgc --epochs 1 --run link", false, exitDone},
		{"train store --model sgc --epochs 1 --lr 1e300 --run link", false, exitFailed},
		{tuneLine, false, exitDone},
		{tuneLine + " --min-accuracy 2", false, exitFailed},
		{"bench ablation store --epochs 1 --rounds 1 --models sgc --placement host -o link", false, exitDone},
		{"bench ablation store --epochs 1 --rounds 1 --models sgc --memory 48MiB -o link", false, exitDoesNotFit},
		{"predict --checkpoint run store -o link", true, exitDone},
		{"report run -o link", true, exitDone},
		{"report nothing -o link", true, exitFailed},
	} {
		t.Run(c.line, func(t *testing.T) {
			dir := t.TempDir()
			link := filepath.Join(dir, "link")
			real := filepath.Join(dir, "real")
			line := strings.Replace(c.line, " link", " "+link, 1)
			if c.file {
				link, real = link+".csv", real+".csv"
				line = strings.Replace(c.line, " link", " "+link, 1)
			}
			if err := os.Symlink(filepath.Base(real), link); err != nil {
				t.Fatal(err)
			}
			if o := hopfeed(t, disk, line); o.code != exitUsage && c.code == exitDone || o.code == exitDone ||
				c.code == exitDone && !strings.Contains(o.stderr, "symbolic link to "+filepath.Base(real)) {
				t.Errorf("towards nothing: exit status %d: %s", o.code, o.stderr)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("towards nothing: left %v", entries)
			}
			if c.file {
				write(t, disk, real, "old")
				if o := hopfeed(t, disk, line); o.code != exitUsage && c.code == exitDone ||
					content(t, disk, real) != "old" {
					t.Errorf("without --force: exit status %d: %s", o.code, o.stderr)
				}
				line += " --force"
			} else if err := os.Mkdir(real, 0o777); err != nil {
				t.Fatal(err)
			}
			if o := hopfeed(t, disk, line); o.code != c.code {
				t.Errorf("exit status %d: %s", o.code, o.stderr)
			}
			if to, err := os.Readlink(link); err != nil || to != filepath.Base(real) {
				t.Errorf("the link: %q, %v", to, err)
			}
			switch info, err := os.Lstat(real); {
			case err != nil || info.IsDir() == c.file:
				t.Errorf("what the link leads to: %v, %v", info, err)
			case c.file && (content(t, disk, real) == "old") != (c.code != exitDone):
				t.Error("the file is not what it should be")
			case !c.file && c.code == exitDone:
				if entries, _ := os.ReadDir(real); len(entries) == 0 {
					t.Error("nothing was written")
				}
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 2 {
				t.Errorf("left %v", entries)
			}
		})
	}
	// --force replaces what the link leads to.
	if err := os.Symlink("arrays", "link"); err != nil {
		t.Fatal(err)
	}
	must(t, disk, "export npy store -o link --force")
	if info, err := os.Lstat("link"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat("arrays/node_id.npy"); err != nil {
		t.Error(err)
	}
}

func TestTheWorkingFolderCanBeTheOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	disk := vfs.OS()
	must(t, disk, generateLine)
	must(t, disk, exportLine)
	write(t, disk, "edges.csv", csvEdges)
	for _, line := range []string{
		"import csv ../edges.csv --ids map", "import npy ../arrays", "generate sbm --nodes 20 --edges 40",
		"propagate ../graph --hops 1", "export npy ../graph",
	} {
		if err := os.Mkdir("empty", 0o777); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{line + " -o .", line + " -o . --force"} {
			if err := os.Chdir("empty"); err != nil {
				t.Fatal(err)
			}
			o := hopfeed(t, disk, line)
			if err := os.Chdir(".."); err != nil { // of the old folder, where there is a new one
				t.Fatal(err)
			}
			if _, err := os.Stat("empty/manifest.json"); o.code != exitDone || err != nil &&
				!strings.HasPrefix(line, "export") {
				t.Errorf("%s: exit status %d: %s (%v)", line, o.code, o.stderr, err)
			}
		}
		if err := os.RemoveAll("empty"); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) != 3 {
			t.Fatalf("%s left %v, %v", line, entries, err)
		}
	}
}

// An output behind a link and .. is where the file system says, not where the text of the path says.
func TestAnOutputAboveALinkIsBesideWhatTheLinkLeadsTo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("elsewhere/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere/folder", "link"); err != nil {
		t.Skip(err)
	}
	must(t, vfs.OS(), "generate sbm -o link/../graph --nodes 20 --edges 40")
	if _, err := os.Stat("elsewhere/graph/manifest.json"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("graph"); err == nil {
		t.Error("it is beside the link")
	}
}
