package command

import (
	"context"
	"io"
	"maps"
	"strings"
	"testing"
)

// What --force is to replace stays, to the byte, where the new version turns out to be
// impossible, however late.
func TestForceThatFailsLeavesTheOldOutput(t *testing.T) {
	d := disk(t, generateLine, exportLine, propagateLine, importNPYLine("arrays", "good"), "export npy store -o out")
	features := content(t, d, "arrays/node_feat.npy")
	bad := func(dir, last string) { // its last feature
		if err := d.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		for name, data := range tree(t, d, "arrays") {
			if strings.HasSuffix(name, "node_feat.npy") {
				data = features[:len(features)-4] + last
			}
			write(t, d, strings.Replace(name, "arrays", dir, 1), data)
		}
	}
	bad("nan", "\x00\x00\xc0\x7f")
	bad("large", "\x00\x00\x80\x7a") // 2^118
	must(t, d, importNPYLine("large", "largegraph"))
	must(t, d, importNPYLine("large", "damaged"))
	file := "damaged/features/x/hop-0/part-00000.arrow"
	damaged := []byte(content(t, d, file))
	damaged[len(damaged)*2/3] ^= 1
	write(t, d, file, string(damaged))
	for _, c := range []struct {
		line, output string
		code         int
	}{
		{importNPYLine("nan", "good") + " --force", "good", exitCorrupt},
		{importNPYLine("large", "good") + " --dtype float16 --force", "good", exitCorrupt},
		{"propagate largegraph -o store --rows all --dtype float16 --force", "store", exitCorrupt},
		{"propagate damaged -o store --rows all --force", "store", exitCorrupt},
		{"export npy damaged -o out --force", "out", exitCorrupt},
	} {
		before := tree(t, d, c.output)
		if o := hopfeed(t, d, c.line); o.code != c.code {
			t.Errorf("%s: exit status %d: %s", c.line, o.code, o.stderr)
		}
		if after := tree(t, d, c.output); !maps.Equal(before, after) && !onlyMore(before, after) {
			t.Errorf("%s has changed %s", c.line, c.output)
		}
		if c.output != "out" {
			must(t, d, "verify "+c.output)
		}
	}
	// Ctrl-C.
	before := tree(t, d, "good")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code := execute(ctx, &app{fs: d, stdout: io.Discard, stderr: io.Discard},
		strings.Fields(importNPYLine("arrays", "good")+" --force"))
	if after := tree(t, d, "good"); code != exitInterrupted || !maps.Equal(before, after) {
		t.Errorf("interrupted: exit status %d; the same: %v", code, maps.Equal(before, after))
	}
}

func importNPYLine(source, output string) string { return "import npy " + source + " -o " + output }

// onlyMore tells whether there is no change but the .job of a job that can go on.
func onlyMore(before, after map[string]string) bool {
	for name, data := range before {
		if after[name] != data {
			return false
		}
	}
	for name := range after {
		if _, was := before[name]; !was && !strings.Contains(name, "/.job/") {
			return false
		}
	}
	return true
}
