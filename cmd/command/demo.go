package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/cmd/command/demodata"
	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/trainer"
)

func newDemoCommand(a *app) *cobra.Command {
	var output string
	c := a.verb("demo", "Import, propagate, verify and train on small built-in graphs, in a minute",
		`Demo imports three graphs that are built into the program (one of products, two of circuits), propagates
their features, verifies what it wrote, and trains and tests models from storage. All files,
also the arrays that it imports, stay in --output for you to look at. A later demo replaces that directory; it
never replaces one that no demo has made.`,
		func(ctx context.Context, a *app, _ []string) (result, error) { return runDemo(ctx, a, output) })
	c.Flags().StringVar(&output, "output", "./hopfeed-demo", "directory to work in")
	return c
}

// demo is a demonstration under way, and its result.
type demo struct {
	Output  string     `json:"output"`
	Steps   []demoStep `json:"steps"`
	Seconds float64    `json:"seconds"`

	ctx context.Context
	app *app
	say func(format string, args ...any)
}

type demoStep struct {
	Step   string `json:"step"`
	Result result `json:"result"`
}

// demoMarker is the file by whose content a demo knows the directory of an earlier one.
const (
	demoMarker     = "made-by-hopfeed-demo"
	demoMarkerText = "hopfeed demo made this directory, and may replace what it made here.\n"
)

func runDemo(ctx context.Context, a *app, output string) (result, error) {
	start := time.Now()
	d := &demo{Output: output, ctx: ctx, app: a}
	d.say = func(format string, args ...any) {
		if a.json {
			a.note(format, args...)
		} else {
			fmt.Fprintf(a.stdout, format+"\n", args...)
		}
	}
	if err := d.claimDirectory(); err != nil {
		return nil, err
	}
	for _, part := range []func() error{d.products, d.circuits} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	d.Seconds = time.Since(start).Seconds()
	d.say("Done in %.0f s.", d.Seconds)
	return d, nil
}

// text says what to do next; all else has been said.
func (d *demo) Text(w io.Writer) {
	hopfeed := program()
	at := func(parts ...string) string { return quote(filepath.Join(append([]string{d.Output}, parts...)...)) }
	fmt.Fprintf(w, "\nWhat to run next, from here:\n\n")
	for _, line := range []string{
		"inspect " + at("photo-store"),
		"train " + at("photo-store") + " --model sgc --runs 5",
		"train " + at("photo-store") + " --model sign --hidden 64 --epochs 30 --placement device",
		"evaluate --checkpoint " + at("circuit-model") + " " + at("csa32-store") + " --rows all",
		"predict --checkpoint " + at("circuit-model") + " " + at("csa32-graph") + " -o " + at("csa32-gates.csv") +
			" --force",
		"export npy " + at("photo-store") + " -o " + at("photo-arrays"),
	} {
		fmt.Fprintf(w, "    %s %s\n", hopfeed, line)
	}
	fmt.Fprintf(w, "\nYour own graph, a folder of NumPy arrays: see %s import --help\n", hopfeed)
}

// program is how the user calls this program.
func program() string {
	if exe, err := os.Executable(); err == nil && strings.Contains(exe, "go-build") {
		return "go run ./cmd/hopfeed"
	}
	return quote(os.Args[0])
}

// quote makes a word of s in a shell.
func quote(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t'\"\\$&|;<>()*?[]{}!#~`", r) }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

func (d *demo) path(name string) string { return filepath.Join(d.Output, name) }

// claimDirectory makes the output directory, or accepts the directory of an earlier demo.
func (d *demo) claimDirectory() error {
	disk := d.app.fs
	entries, err := disk.ReadDir(d.Output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	there, err := vfs.ReadFile(disk, d.path(demoMarker), int64(len(demoMarkerText)))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrSize):
		return err
	case string(there) == demoMarkerText:
		return nil
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s was not made by a demo and is not replaced (choose another directory by --output)",
			format.ErrExists, d.Output)
	}
	if err := disk.MkdirAll(d.Output); err != nil {
		return err
	}
	return vfs.WriteFile(disk, d.path(demoMarker), []byte(demoMarkerText))
}

// run runs a verb by its command line, in which @NAME is NAME in the directory of the demo, without its words: the demo
// talks.
func (d *demo) run(step, line string) (r result, err error) {
	verb := *d.app
	verb.keep = func(printed result) { r = printed }
	args := []string{"--quiet", "--seed", strconv.FormatUint(verb.seed, 10), "--threads", strconv.Itoa(verb.threads)}
	if verb.memory > 0 {
		args = append(args, "--memory", fmt.Sprintf("%dB", int64(verb.memory)))
	}
	for _, word := range strings.Fields(line) {
		if name, ok := strings.CutPrefix(word, "@"); ok {
			word = d.path(name)
		}
		args = append(args, word)
	}
	name, _, _ := strings.Cut(line, " ")
	root := newRoot(&verb, name)
	root.SetArgs(args)
	if err := root.ExecuteContext(d.ctx); err != nil {
		return nil, err
	}
	d.Steps = append(d.Steps, demoStep{step, r})
	return r, nil
}

// products trains on the larger graph.
func (d *demo) products() error {
	d.say("Hopfeed propagates the features of a graph once, stores the result, and trains on rows of it: the graph\n"+
		"is not needed any more. What follows is written below %s.\n", d.Output)
	d.say("Products. amazon_photo: cameras and their like; edges join what is bought together, features are\n" +
		"the words of reviews, and the task is the category of each product.\n")
	if err := d.makeStore("amazon_photo", "photo", " --normalize-features", "sym"); err != nil {
		return err
	}
	if err := d.train("photo", "photo-sgc", "--model sgc"); err != nil {
		return err
	}
	return d.train("photo", "photo-sign", productSIGN)
}

// circuits trains on a small circuit and tests on one of 17 times its size.
func (d *demo) circuits() error {
	d.say("Circuits. gamora_csa8 and gamora_csa32: multipliers of 8 and 32 bits as graphs of gates; the task is\n" +
		"which gates are roots of adders (XOR, majority). The model sees the small one only.\n")
	for _, name := range []string{"csa8", "csa32"} {
		if err := d.makeStore("gamora_"+name, name, "", "sym,rw"); err != nil {
			return err
		}
	}
	if err := d.train("csa8", "circuit-model", circuitSIGN); err != nil {
		return err
	}
	r, err := d.run("evaluate csa32",
		"evaluate --checkpoint @circuit-model @csa32-store --rows all --placement storage")
	if err != nil {
		return err
	}
	e := r.(*evaluated)
	d.say("  evaluate   the model of csa8 on csa32: accuracy %s on all %d gates, which it has never seen\n"+
		"             input from storage: %s\n", trainer.Percent(e.Value), e.Rows, readsText(e.Load))
	return nil
}

// Settings of the demo's models where they are not the defaults: for products smaller and shorter, for the time they
// take; for circuits chosen on the validation rows of the small one.
const (
	productSIGN = "--model sign --hidden 64 --dropout 0.5 --epochs 30"
	circuitSIGN = "--model sign --hidden 64 --dropout 0.1 --lr 0.01 --weight-decay 0 --epochs 300 --patience 20"
)

// makeStore imports a graph that the program carries as <name>-graph, propagates it into <name>-store, and verifies
// that.
func (d *demo) makeStore(carried, name, importFlags, operators string) error {
	arrays := d.path(name + "-input")
	if err := demodata.Unpack(d.app.fs, arrays, carried); err != nil {
		return err
	}
	r, err := d.run("import "+name, fmt.Sprintf("import npy @%s-input -o @%[1]s-graph --force%s", name, importFlags))
	if err != nil {
		return err
	}
	i := r.(imported)
	d.say("  import     %s: %d nodes, %d edges, %d features, %d classes; %.1f s", i.Output, i.Nodes, i.Edges,
		i.Features, i.Classes, i.Seconds)
	r, err = d.run("propagate "+name, fmt.Sprintf("propagate @%s-graph -o @%[1]s-store --hops 3 --operator %s "+
		"--rows labeled --force", name, operators))
	if err != nil {
		return err
	}
	p := r.(*propagated)
	d.say("  propagate  %s: the features and %d hops of %s, %d matrices [%d,%d], %s; %.1f s", p.Output, p.Hops,
		strings.Join(p.Operators, " and "), 1+len(p.HopSeconds), p.Rows, p.Features, units.Bytes(p.BytesWritten),
		p.Seconds)
	if r, err = d.run("verify "+name, "verify @"+name+"-store"); err != nil {
		return err
	}
	v := r.(verified)
	d.say("  verify     every byte of %d files read, %d chunks and all else agree with their checksums\n", v.Files,
		v.Chunks)
	return nil
}

// train trains from storage on <name>-store, by flags, and saves the model.
func (d *demo) train(name, run, flags string) error {
	r, err := d.run("train "+run, fmt.Sprintf("train @%s-store --run @%s --placement storage --force %s", name, run,
		flags))
	if err != nil {
		return err
	}
	t := r.(*trained)
	d.say("  train      %s on %d rows of %s", t.Model, t.rows[0], strings.Join(t.Matrices, ", "))
	d.say("             input from storage, shuffled by chunk: %s", readsText(t.Load))
	valid := ""
	if t.ValidMetric != nil {
		valid = fmt.Sprintf(", %s on %d validation rows", trainer.Percent(t.ValidMetric), t.rows[1])
	}
	d.say("             accuracy %s on %d test rows%s", trainer.Percent(t.TestMetric), t.rows[2], valid)
	d.say("             %.0f epochs, selected %.0f: %s; %.1f s; model saved in %s\n", *t.Epochs, *t.BestEpoch,
		t.Selection, t.Seconds, t.Output)
	return nil
}
