package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// TestNamesFromFilesDoNotReachTheTerminalAsTheyAre gives a data set, an input, a class
// and files names that would colour a terminal and add lines of their own.
func TestNamesFromFilesDoNotReachTheTerminalAsTheyAre(t *testing.T) {
	const bad, shown = "evil\x1b[31m\nall is well\u202e", `evil\x1b[31m\nall is well\u202e`
	quoted, _ := json.Marshal(bad)
	disk := vfs.NewMem()
	must(t, disk, "generate sbm -o graph --nodes 60 --edges 200 --features 4 --classes 2 --labeled 1 --seed 7")
	must(t, disk, "propagate graph -o store --hops 1")
	manifest := content(t, disk, "store/manifest.json")
	manifest = strings.Replace(manifest, `"name": "sbm"`, `"name": `+string(quoted), 1)
	manifest = strings.Replace(manifest, `"input": {`, `"input": {`+string(quoted)+`: `+string(quoted)+`,`, 1)
	write(t, disk, "store/manifest.json", sealed(manifest))

	for _, c := range []struct{ line, says string }{
		{"inspect store", "name         " + shown + "\n"},
		{"train store --model sgc --epochs 1 --run run", "sgc on " + shown},
		{"evaluate --checkpoint run store", shown + " from"},
		{"verify store", "all is well\n"},
	} {
		o := must(t, disk, c.line)
		if text := o.stdout + o.stderr; strings.ContainsAny(text, "\x1b\u202e") || !strings.Contains(text, c.says) ||
			strings.Contains(text, "\nall is well\\u202e") {
			t.Errorf("%s: %q", c.line, text)
		}
	}
	if o := must(t, disk, "inspect store"); strings.Count(o.stdout, shown) != 3 {
		t.Errorf("inspect: %q", o.stdout)
	}

	write(t, disk, "store/"+bad, "")
	o := hopfeed(t, disk, "verify store")
	if o.code != exitCorrupt || strings.ContainsAny(o.stdout+o.stderr, "\x1b\u202e") ||
		!strings.HasPrefix(o.stdout,
			"store/"+shown+": corrupt: the manifest does not list this file, so nothing reads it") {
		t.Errorf("verify: %d %q %q", o.code, o.stdout, o.stderr)
	}
	o = hopfeed(t, disk, "verify store --json")
	var report struct {
		Bad []struct{ File string }
	}
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || len(report.Bad) != 1 ||
		report.Bad[0].File != "store/"+bad {
		t.Errorf("verify --json: %q", o.stdout)
	}
	o = hopfeed(t, disk, "propagate graph -o store --hops 1 --rows all --force")
	if o.code == exitDone || strings.ContainsAny(o.stderr, "\x1b\u202e") ||
		!strings.Contains(o.stderr, `evil\x1b[31m`) {
		t.Errorf("propagate: %d %q", o.code, o.stderr)
	}
}

func TestWhatFileManagersLeaveIsNoted(t *testing.T) {
	disk := vfs.NewMem()
	must(t, disk, "generate sbm -o graph --nodes 60 --edges 200 --features 4 --classes 2 --seed 7")
	write(t, disk, "graph/.DS_Store", "")
	o := must(t, disk, "verify graph")
	if want := "note: graph/.DS_Store: left by a file manager, a file server or an editor: nothing reads it, so it " +
		"may stay or be removed\n"; !strings.HasPrefix(o.stdout, want) ||
		!strings.HasSuffix(o.stdout, "all is well\n") {
		t.Errorf("%q", o.stdout)
	}
	o = must(t, disk, "verify graph --json")
	if !strings.Contains(o.stdout, `"bad":[],"notes":[{"file":"graph/.DS_Store","reason":"left by`) {
		t.Errorf("%q", o.stdout)
	}
	write(t, disk, "graph/notes.txt", "")
	if o := hopfeed(t, disk, "verify graph"); o.code != exitCorrupt ||
		!strings.Contains(o.stdout, "move it elsewhere, or remove it") {
		t.Errorf("%d %q", o.code, o.stdout)
	}
}

// TestAnInputIsNamedByItsFolderEverywhere imports a folder that does not say what it is called, to a graph and a store
// that
// are called like any others.
func TestAnInputIsNamedByItsFolderEverywhere(t *testing.T) {
	d := disk(t, generateLine)
	must(t, d, "export npy graph -o data/elliptic")
	meta := content(t, d, "data/elliptic/meta.json")
	write(t, d, "data/elliptic/meta.json", strings.Replace(meta, `"name": "sbm"`, `"name": ""`, 1))
	must(t, d, "import npy data/elliptic -o graph --force")
	must(t, d, "propagate graph -o store --hops 1")
	must(t, d, "import npy data/elliptic -o other --name else")
	for _, c := range []struct{ line, says string }{
		{"inspect graph", "name         elliptic\n"},
		{"inspect store", "name         elliptic\n"},
		{"inspect other", "name         else\n"},
		{"plan store --model sgc", "elliptic: 1 matrix"},
		{"train store --model sgc --epochs 1 --run run", "sgc on elliptic"},
		{"train graph --model sage --epochs 1 --hidden 4 --run graph-run", "sage on elliptic"},
		{"evaluate --checkpoint run store", "elliptic from"},
		{"predict --checkpoint run store -o out.csv", "elliptic from"},
		{"tune store --model sgc --epochs 1 --budget 1", "elliptic"},
		{"report run graph-run", "report.html"},
	} {
		if o := must(t, d, c.line); !strings.Contains(o.stdout+o.stderr, c.says) {
			t.Errorf("%s: %s%s", c.line, o.stdout, o.stderr)
		}
	}
	for file, says := range map[string]string{"report.html": "<td>elliptic</td>",
		"tuning/tuning.html": "Tuning of sgc on elliptic"} {
		if !strings.Contains(content(t, d, file), says) {
			t.Errorf("%s lacks %s", file, says)
		}
	}
}

// TestATrainingGoesOnWhenItsDataHaveAnotherName imports a graph again, under another name, between two parts of a
// training.
func TestATrainingGoesOnWhenItsDataHaveAnotherName(t *testing.T) {
	d := disk(t, generateLine, "export npy graph -o data", "import npy data -o graph --force",
		"propagate graph -o store --hops 1")
	const line = "train store --model sgc --epochs 6 --save-every 0s --run run"
	if o := interruptedAtSave(t, d, 2, line); o.code != exitInterrupted {
		t.Fatalf("exit status %d: %s", o.code, o.stderr)
	}
	must(t, d, "import npy data -o graph --force --name else")
	must(t, d, "propagate graph -o store --hops 1 --force")
	must(t, d, line)
}
