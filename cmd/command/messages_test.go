package command

import (
	"strings"
	"testing"
)

// A command prints what a user needs; --verbose prints the rest.
func TestDetailsAreForThoseWhoAsk(t *testing.T) {
	d := disk(t, generateLine)
	short := must(t, d, "propagate graph -o store --hops 2")
	if n := strings.Count(short.stdout, "\n"); n != 2 || short.stderr != "" {
		t.Errorf("propagate prints %d lines, and %q beside:\n%s", n, short.stderr, short.stdout)
	}
	long := must(t, d, "propagate graph -o store --hops 2 --force --verbose")
	for _, said := range []string{"s planning", "sym hop 2", "past the page cache"} {
		if strings.Contains(short.stdout, said) || !strings.Contains(long.stdout, said) {
			t.Errorf("%q: said unasked, or not said", said)
		}
	}
	if !strings.Contains(long.stderr, "plan: all columns") {
		t.Errorf("--verbose prints no plan: %s", long.stderr)
	}
	for _, said := range []string{"GPU", "would help most"} { // without GPUs, and in a second
		if plan := must(t, d,
			"propagate graph -o other --dry-run"); strings.Contains(long.stdout+long.stderr+plan.stdout, said) {
			t.Errorf("%q is said", said)
		}
	}
	const train = "train store --model sign --hidden 4 --epochs 3"
	short, long = must(t, d, train), must(t, d, train+" --verbose")
	if reason := "fits its memory"; strings.Contains(short.stderr, reason) || !strings.Contains(long.stderr, reason) {
		t.Errorf("reasons of the placement: said unasked, or not said:\n%s", long.stderr)
	}
	if !strings.Contains(short.stdout, "(epoch ") || !strings.Contains(short.stdout, " of 3, ") {
		t.Errorf("the validation figure names no epoch:\n%s", short.stdout)
	}
	if o := hopfeed(t, d, "inspect store --quiet --verbose"); o.code != exitUsage {
		t.Errorf("--quiet --verbose: exit status %d", o.code)
	}
}

func TestASlipOfAFlagIsAnsweredWithTheFlag(t *testing.T) {
	d := disk(t)
	for line, want := range map[string]string{
		"train store --hop 2": "unknown flag: --hop: did you mean --hops? (see hopfeed train --help)",
		"train store --modle sgc": "unknown flag: --modle: did you mean --model? (see hopfeed train " +
			"--help)",
		"import csv edges.csv --undirect": "unknown flag: --undirect: did you mean --undirected? (see hopfeed " +
			"import csv --help)",
		"bench load store --plaement host": "unknown flag: --plaement: did you mean --placement? (see hopfeed " +
			"bench load --help)",
		"train store --nothing-like-that": "unknown flag: --nothing-like-that (see hopfeed train --help)",
		"trian store":                     `unknown command "trian": did you mean train? (see hopfeed --help)`,
		"bench laod store":                `unknown command "laod": did you mean load? (see hopfeed bench --help)`,
		"train store --epochs many":       `--epochs "many": want a whole number (see hopfeed train --help)`,
		"train store --lr much":           `--lr "much": want a number (see hopfeed train --help)`,
		"train store --hops 2,many": `--hops "2,many": want whole numbers, separated by commas (see ` +
			`hopfeed train --help)`,
		"plan --split-shares a": `--split-shares "a": want numbers, separated by commas (see hopfeed ` +
			`plan --help)`,
		"train store --schedule other": `--schedule "other": want one of auto, cpu, gpu, mixed, collective, ` +
			`collective-paper, sequential, mode-1, mode-2, multi-queue (see hopfeed train --help)`,
		"import cvs edges.csv": `there is no import layout "cvs": did you mean csv? (want one of ` +
			`npy, csv, mtx, ogb, igb, graphsaint, parquet)`,
		"generate smb -o graph": `there is no generator "smb": did you mean sbm? (there are: rmat, sbm)`,
		"train store --model sgin --epochs 1": `--model: there is no model "sgin": the models are sgc, ssgc, sign, ` +
			`gamlp, hoga, sehgnn, nars, gcn, sage, gat, rgcn`,
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || o.stderr != "hopfeed: "+want+"\n" {
			t.Errorf("%s: exit status %d: %swant %s", line, o.code, o.stderr, want)
		}
	}
}
