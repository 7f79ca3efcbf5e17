package command

import (
	"bufio"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const benchPropagateLine = "bench propagate --nodes 500 --edges 4000 --features 20 --rounds 2 --threads 1,3 "

func TestBenchPropagateMeasuresEveryTypeByEveryNumberOfThreads(t *testing.T) {
	d := disk(t)
	var got []string
	edges := 0.0
	for s := bufio.NewScanner(strings.NewReader(must(t, d,
		benchPropagateLine+"--json --dtype float32,bfloat16").stdout)); s.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		for _, key := range []string{"seconds", "fastest_seconds", "gathered_bytes_per_second", "read_bytes_per_second",
			"random_bytes_per_second"} {
			if v, ok := line[key].(float64); !ok || v <= 0 {
				t.Errorf("%s is %v in %s", key, line[key], s.Text())
			}
		}
		if rounds := line["round_seconds"].([]any); len(rounds) != 2 || line["nodes"] != 500.0 ||
			line["edges"] != 4000.0 || line["features"] != 20.0 {
			t.Errorf("%s", s.Text())
		}
		// Each edge, and a loop for most nodes: the same in all lines.
		n := line["edges_processed"].(float64)
		if n <= 4000 || n > 4500 || edges != 0 && n != edges {
			t.Errorf("%v rows were gathered, then %v", edges, n)
		}
		edges = n
		got = append(got, line["dtype"].(string)+" "+string('0'+rune(line["threads"].(float64))))
	}
	if want := []string{"float32 1", "float32 3", "bfloat16 1", "bfloat16 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}

	lines := regexp.MustCompile(`(?m)^BenchmarkHop/dtype=float16/threads=[13]-[13]\t1\t\d+ ns/op\t\d+\.\d\d MB/s$`)
	if out := must(t, d, benchPropagateLine+"--gobench --dtype float16").stdout; len(lines.FindAllString(out,
		-1)) != 4 {
		t.Errorf("Go benchmarks:\n%s", out)
	}
	if out := must(t, d, benchPropagateLine).stdout; strings.Count(out, "\n") != 1+3*2 {
		t.Errorf("text:\n%s", out)
	}
}

func TestBenchPropagateRefusesWhatItCannotMeasure(t *testing.T) {
	d := disk(t)
	for _, c := range []struct {
		line   string
		status int
		err    string
	}{
		{"bench propagate --nodes 0", exitUsage, "--nodes 0"},
		{"bench propagate --nodes 4294967296", exitUsage, "1 to 4294967295"},
		{"bench propagate --edges -1", exitUsage, "--edges -1"},
		{"bench propagate --rounds 0", exitUsage, "--rounds 0"},
		{"bench propagate --threads 1,0", exitUsage, "--threads 0"},
		{"bench propagate --dtype int8", exitUsage, "--dtype int8"},
		{"bench propagate --json --gobench", exitUsage, "--gobench"},
		{"bench propagate --memory 1MiB", exitDoesNotFit, "needs "},
		{"bench propagate --edges 281474976710656", exitUsage, "1 to 281474976710655"},
		{"bench propagate --features 16777216", exitUsage, "1 to 16777215"},
		{"bench propagate --nodes 4294967295 --edges 281474976710655 --features 16777215", exitDoesNotFit, "needs 1"},
	} {
		if r := hopfeed(t, d, c.line); r.code != c.status || !strings.Contains(r.stderr, c.err) {
			t.Errorf("%q: status %d, %s", c.line, r.code, r.stderr)
		}
	}
}
