package command

import (
	"bufio"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// loadLines are the results of a bench load, by variant and placement.
func loadLines(t *testing.T, stdout string) map[string]map[string]any {
	t.Helper()
	lines := map[string]map[string]any{}
	for s := bufio.NewScanner(strings.NewReader(stdout)); s.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		for _, key := range []string{"bytes_per_second", "rows_per_second", "core_seconds_per_gb"} {
			if v, ok := line[key].(float64); !ok || v < 0 {
				t.Errorf("%s is %v in %s", key, line[key], s.Text())
			}
		}
		lines[strings.TrimSpace(line["variant"].(string)+" "+line["placement"].(string))] = line
	}
	return lines
}

func TestBenchLoadMeasuresEveryVariantFromEveryPlacementThatHasIt(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	all := []string{
		"baseline device", "baseline host", "chunk device", "chunk host", "chunk storage",
		"double-buffer device", "double-buffer host", "fused device", "fused host", "memcpy",
	}
	for _, c := range []struct {
		flags string
		want  []string
	}{
		{"", all},
		{"--placement storage", []string{"chunk storage"}},
		{"--shuffle chunk --unchecked --compute 1us",
			[]string{"chunk device", "chunk host", "chunk storage", "memcpy"}},
		{"--placement host --shuffle rr --variants fused,chunk --buffers 4", []string{"fused host", "memcpy"}},
		{"--emulate gpu=1,mem=8MiB,link=8GiB/s", slices.Concat(all[:9], []string{"mapped host", "memcpy"})},
		{"--emulate mem=8MiB --variants mapped", []string{"mapped host", "memcpy"}},
	} {
		lines := loadLines(t, must(t, d, "bench load store --json --rounds 2 --batch 50 "+c.flags).stdout)
		if got := slices.Sorted(maps.Keys(lines)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.flags, got, c.want)
		}
		for name, line := range lines {
			if want := map[bool]string{true: "chunk",
				false: "rr"}[strings.HasPrefix(name, "chunk")]; name != "memcpy" && line["shuffle"] != want {
				t.Errorf("%s reshuffles %v", name, line["shuffle"])
			}
		}
	}
	text := must(t, d, "bench load store --rounds 1 --batch 50").stdout
	table, _, _ := strings.Cut(text, "\n\n") // from the mark of noise
	if lines := strings.Count(strings.TrimSuffix(table, "\n"), "\n"); lines != len(all) {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

func TestBenchLoadRefusesWhatCannotBeMeasured(t *testing.T) {
	d := disk(t, generateLine, propagateLine)
	for flags, want := range map[string]string{
		"--placement tape":  "tape",
		"--shuffle no":      "no",
		"--variants faster": "faster",
		"--rounds 0":        "--rounds 0",
		"--buffers 0":       "--buffers 0",
		"--batch 0":         "--batch 0",
		"--compute -1s":     "-1s",

		"--placement storage --shuffle rr": "from [storage]",
	} {
		if o := hopfeed(t, d, "bench load store "+flags); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", flags, o.code, o.stderr)
		}
	}
	if o := hopfeed(t, d, "bench load store --emulate mem=4KiB"); o.code != exitDoesNotFit ||
		!strings.Contains(o.stderr, "4 KiB") {
		t.Errorf("a device without memory: status %d, %s", o.code, o.stderr)
	}
	for _, flags := range []string{"", " --json"} {
		if o := hopfeed(t, d, "bench load store --emulate mem=4KiB"+flags); o.stdout != "" {
			t.Errorf("what has failed has printed %q", o.stdout)
		}
	}
	if o := hopfeed(t, d, "bench load graph"); o.code != exitUsage || !strings.Contains(o.stderr, "is a graph") {
		t.Errorf("a graph: status %d, %s", o.code, o.stderr)
	}
}
