package vfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be a second process that takes a lock, says so,
// and holds it until it is killed or its input ends.
func TestMain(m *testing.M) {
	if path := os.Getenv("HOPFEED_TEST_LOCK"); path != "" {
		if _, err := OS().Lock(path); err != nil {
			os.Stdout.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString("locked\n")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	os.Exit(m.Run())
}

func TestALockHoldsAgainstOtherProcessesAndDiesWithItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOPFEED_TEST_LOCK="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "locked\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	_, err = OS().Lock(path)
	wantError(t, err, ErrLocked)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	cmd.Wait() // an error: it was killed
	lock, err := OS().Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
}

func TestALockOnAFileThatWasRemovedIsFree(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl.name, func(t *testing.T) {
			fsys, dir := impl.make(t)
			path := filepath.Join(dir, "lock")
			first, err := fsys.Lock(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := fsys.Remove(path); err != nil {
				t.Fatal(err)
			}
			second, err := fsys.Lock(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(first.Close(), second.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatCannotBeResolvedIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, OS(), path, "x")
	_, err := OS().Resolve(filepath.Join(path, "b"))
	wantError(t, err, syscall.ENOTDIR)
}

func TestOpenRefusesDirectReadsOfDirectories(t *testing.T) {
	_, err := OS().(Directer).OpenDirect(t.TempDir())
	wantError(t, err, nil)
	if errors.Is(err, ErrNoDirect) {
		t.Errorf("a directory is taken for a file that refuses direct reads: %v", err)
	}
}

func TestOpenRefusesAPipeInsteadOfWaitingForAWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := OS().Open(path)
	wantError(t, err, nil)
	_, err = OS().(Directer).OpenDirect(path)
	wantError(t, err, nil)
}

func TestResolveFollowsLinksAlsoTowardsWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, OS(), filepath.Join(dir, "a/b"))
	if err := errors.Join(os.Symlink("a", filepath.Join(dir, "relative")),
		os.Symlink(filepath.Join(dir, "relative/b"), filepath.Join(dir, "absolute"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"relative": "a", "absolute": "a/b", "absolute/c/d": "a/b/c/d",
		"relative/c": "a/c"} {
		want, err := OS().Resolve(filepath.Join(dir, want))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := OS().Resolve(filepath.Join(dir, name)); got != want || err != nil {
			t.Errorf("%s resolves to %s, %v; want %s", name, got, err, want)
		}
	}
}

func TestDirectReadsGoOnAfterInterruptionsAndShortReads(t *testing.T) {
	const align, size = 16, 100
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i + 1)
	}
	interrupted := func([]byte, int64) (int, error) { return -1, unix.EINTR }
	atMost := func(n int) func(p []byte, off int64) (int, error) {
		return func(p []byte, off int64) (int, error) { return copy(p[:min(n, len(p))], content[min(off, size):]), nil }
	}
	fails := func([]byte, int64) (int, error) { return -1, unix.EIO }
	whole := atMost(size)
	for _, c := range []struct {
		name        string
		off         int64
		length      int
		reads       []func([]byte, int64) (int, error) // one after another
		n           int
		err         error
		calledTimes int
	}{
		{"in one read", 16, 64, []func([]byte, int64) (int, error){whole}, 64, nil, 1},
		{"interrupted twice", 16, 64, []func([]byte, int64) (int, error){interrupted, interrupted, whole}, 64, nil, 3},
		{"cut short after whole blocks", 0, 96, []func([]byte, int64) (int, error){atMost(32), interrupted, atMost(16),
			whole}, 96, nil, 4},
		{"cut short within a block, which is read again", 0, 96, []func([]byte, int64) (int, error){atMost(40), whole},
			96, nil, 2},
		{"cut short within the first block", 0, 96, []func([]byte, int64) (int, error){atMost(32), atMost(5)}, 32,
			unix.EINVAL, 2},
		{"to the end of the file", 80, 64, []func([]byte, int64) (int, error){whole}, 20, io.EOF, 1},
		{"beyond it", 112, 16, []func([]byte, int64) (int, error){whole}, 0, io.EOF, 1},
		{"a disk that fails midway", 0, 96, []func([]byte, int64) (int, error){atMost(32), fails}, 32, unix.EIO, 2},
	} {
		called := 0
		p := make([]byte, c.length)
		n, err := readBlocks(p, c.off, align, func() (int64, error) { return size, nil },
			func(p []byte, off int64) (int, error) {
				if off%align != 0 {
					t.Errorf("%s: a read at %d", c.name, off)
				}
				called++
				return c.reads[called-1](p, off)
			})
		if n != c.n || err != c.err || called != c.calledTimes {
			t.Errorf("%s: %d bytes and %v by %d reads, want %d and %v by %d", c.name, n, err, called, c.n, c.err,
				c.calledTimes)
		}
		if !bytes.Equal(p[:n], content[min(c.off, size):min(c.off, size)+int64(n)]) {
			t.Errorf("%s: other bytes", c.name)
		}
	}
}

func TestTheNamesOfAFolderThatIsThereAreSynced(t *testing.T) {
	root, err := OS().Resolve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := filepath.Join(root, "a")
	b := filepath.Join(a, "b")
	if err := os.MkdirAll(b, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{b, filepath.Join(b, "c"), filepath.Join(root, "link"),
		filepath.Join(root, "link", "d")} {
		synced := map[string]bool{}
		if err := mkdirAll(path, func(dir string) error { synced[dir] = true; return syncDir(dir) }); err != nil {
			t.Fatal(err)
		}
		if !synced[root] || !synced[a] {
			t.Errorf("making %s synced %v, want %s and %s among them", path, synced, root, a)
		}
	}
	broken := errors.New("disk on fire")
	if err := mkdirAll(b, func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("a sync that fails: %v", err)
	}
	if err := mkdirAll(b, func(string) error { return syscall.EACCES }); err != nil {
		t.Errorf("a parent that may not be opened: %v", err)
	}
}

func TestALockThatCannotBeHadIsNotTriedForForEver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	other, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		info  os.FileInfo
		err   error
		want  error
		tries int
	}{
		{"a file that is removed each time", nil, syscall.ENOENT, errReplaced, lockTries},
		{"a file that is another one each time", other, nil, errReplaced, lockTries},
		{"a file that cannot be looked at", nil, syscall.EIO, syscall.EIO, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			tries := 0
			held, err := lock(path, func(string) (os.FileInfo, error) { tries++; return c.info, c.err })
			if held != nil || tries != c.tries {
				t.Errorf("%v after %d tries, want %d", held, tries, c.tries)
			}
			wantError(t, err, c.want)
			free, err := OS().Lock(path)
			if err != nil {
				t.Fatalf("what was tried for stays locked: %v", err)
			}
			free.Close()
		})
	}
}

func TestLinksAreFollowedAndNeverRemovedOrReplaced(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	mkdir(t, OS(), at("folder"))
	mkdir(t, OS(), at("elsewhere"))
	put(t, OS(), at("elsewhere/file"), "old")
	for link, to := range map[string]string{"toFolder": "folder", "toFile": "elsewhere/file", "toNothing": "nothing"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func() error{
		"remove toFolder":   func() error { return OS().Remove(at("toFolder")) },
		"remove toFile":     func() error { return OS().Remove(at("toFile")) },
		"remove toNothing":  func() error { return OS().Remove(at("toNothing")) },
		"rename to":         func() error { return OS().Rename(at("folder"), at("toNothing")) },
		"rename from":       func() error { return OS().Rename(at("toFile"), at("new")) },
		"exchange":          func() error { return OS().Exchange(at("toFolder"), at("folder")) },
		"mkdir toNothing":   func() error { return OS().MkdirAll(at("toNothing/below")) },
		"lock toNothing":    func() error { _, err := OS().Lock(at("toNothing")); return err },
		"resolve toNothing": func() error { _, err := OS().Resolve(at("toNothing/below")); return err },
		"create toNothing":  func() error { _, err := OS().Create(at("toNothing")); return err },
		"direct toNothing": func() error {
			_, err := OS().(DirectCreator).CreateDirect(at("toNothing"), MinDirect)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, call(), ErrLink) })
	}
	put(t, OS(), at("toFile"), "new")
	if got, err := os.ReadFile(at("elsewhere/file")); string(got) != "new" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
	for _, link := range []string{"toFolder", "toFile", "toNothing"} {
		if _, err := os.Readlink(at(link)); err != nil {
			t.Error(err)
		}
	}
}

func TestALinkToItselfIsNamed(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("link", link); err != nil {
		t.Fatal(err)
	}
	if _, err := OS().Create(link); err == nil || !strings.Contains(err.Error(), link) {
		t.Error(err)
	}
}

func TestWhatIsNoFileIsNeverReplaced(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink("pipe", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link} {
		_, err := OS().Create(path)
		wantError(t, err, errNoFile)
		_, err = OS().(DirectCreator).CreateDirect(path, MinDirect)
		wantError(t, err, errNoFile)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 2 || err != nil {
		t.Errorf("there are %v, %v", entries, err)
	}
}
