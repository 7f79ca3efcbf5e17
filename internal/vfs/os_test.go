package vfs

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	_, _, err := OS().(Directer).OpenDirect(t.TempDir())
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
	_, _, err = OS().(Directer).OpenDirect(path)
	wantError(t, err, nil)
}

func TestResolveFollowsLinksAlsoTowardsWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	mkdir(t, OS(), filepath.Join(dir, "a/b"))
	if err := errors.Join(os.Symlink("a", filepath.Join(dir, "relative")), os.Symlink(filepath.Join(dir, "relative/b"), filepath.Join(dir, "absolute"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"relative": "a", "absolute": "a/b", "absolute/c/d": "a/b/c/d", "relative/c": "a/c"} {
		want, err := OS().Resolve(filepath.Join(dir, want))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := OS().Resolve(filepath.Join(dir, name)); got != want || err != nil {
			t.Errorf("%s resolves to %s, %v; want %s", name, got, err, want)
		}
	}
}
