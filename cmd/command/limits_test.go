package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// underLimit runs a command line in dir, in a process of its own with a limit of ulimit, and perhaps another user's.
func underLimit(t *testing.T, program, dir, limit, line string, user *syscall.Credential) (o outcome) {
	t.Helper()
	c := exec.Command("bash", append([]string{"-c", `ulimit ` + limit + ` && exec "$0" "$@"`, program},
		strings.Fields(line)...)...)
	var stdout, stderr bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.Env = dir, &stdout, &stderr, append(os.Environ(), asCommand+"=0")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	_ = c.Run() // which the status tells
	return outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Jobs plan within the limits of the system, and where one has no room for them they end with status 4 and a line
// that names it.
func TestLimitsOfTheSystemAreKeptOrNamed(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash, which sets the limits, is not installed")
	}
	if limits, err := os.ReadFile("/proc/self/limits"); err != nil || len(limits) == 0 {
		t.Skip("the system does not say what its limits are")
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	withC := bytes.Contains(maps, []byte("/libc.so")) // whose threads reserve address space of their own, 128 MiB each
	dir := t.TempDir()
	t.Chdir(dir)
	for _, line := range []string{generateLine, "propagate graph -o store --hops 20 --chunk-rows 16"} {
		must(t, vfs.OS(), line)
	}
	const train = "train store --model sign --hidden 4 --epochs 1 --placement storage"
	const large = "generate rmat -o large --nodes 100000000 --edges 10"
	for _, c := range []struct {
		limit, line string
		code        int
		says        string
	}{
		{"-v 1380000", "version", exitDoesNotFit, "ulimit -v allows less"},
		{"-v 1700000", train, exitDone, ""},
		{"-v 1600000", large, exitDoesNotFit, "does not fit"},
		{"-v 1600000", large + " --memory 2GiB", exitDoesNotFit, "does not fit"},
		{"-n 12", "inspect store", exitDoesNotFit, "ulimit -n allows 12"},
		{"-n 24", "inspect store", exitDone, ""},
		{"-n 24", train, exitDoesNotFit, "too many open files (ulimit -n"},
	} {
		if withC && strings.HasPrefix(c.limit, "-v") {
			continue
		}
		o := underLimit(t, os.Args[0], dir, c.limit, c.line, nil)
		if o.code != c.code || !strings.Contains(o.stderr, c.says) || c.code != exitDone &&
			strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("ulimit %s, %s: exit status %d: %s", c.limit, c.line, o.code, o.stderr)
		}
	}
}

// As many threads compute as a user may have, and more that are asked for are refused: the runtime would end the
// process where it gets none.
func TestThreadsAreThoseThatAUserMayHave(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil || os.Getuid() != 0 {
		t.Skip("needs bash, and the right to be a user without other processes")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "hopfeed")
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the user needs a way to the program
		t.Fatal(err)
	}
	if err := os.Link(os.Args[0], program); err != nil {
		t.Skip(err)
	}
	user := &syscall.Credential{Uid: 1<<31 - 7, Gid: 1<<31 - 7}
	for _, c := range []struct {
		processes, threads, code int
	}{{12, 1, exitDoesNotFit}, {40, 1, exitDone}, {40, 0, exitDone}, {40, 9, exitDoesNotFit}, {400, 9, exitDone}} {
		o := underLimit(t, program, "/", fmt.Sprintf("-u %d", c.processes),
			fmt.Sprintf("version --threads %d", c.threads), user)
		if o.code != c.code || o.code != exitDone &&
			(!strings.Contains(o.stderr, "ulimit -u") || strings.Count(o.stderr, "\n") != 1) {
			t.Errorf("ulimit -u %d, --threads %d: exit status %d: %s", c.processes, c.threads, o.code, o.stderr)
		}
	}
}
