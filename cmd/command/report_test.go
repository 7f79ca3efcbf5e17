package command

import (
	"strings"
	"testing"
)

func TestAReportIsWrittenOnceAndByForceAgain(t *testing.T) {
	d := disk(t, generateLine)
	write(t, d, "grid.yaml", "lr: [0.1, 0.3]\n")
	write(t, d, "propagation.json", must(t, d,
		"propagate graph -o store --hops 2 --operator sym --chunk-rows 40 --json").stdout)
	must(t, d, "train store --model sgc --epochs 3 --runs 2 --run a/run")
	must(t, d, "train store --model sgc --epochs 2 --run b/run --grid grid.yaml")
	if o := must(t, d, "report a/run b/run --propagation propagation.json"); !strings.Contains(o.stdout,
		"report.html, about 2 trainings") {
		t.Errorf("%s", o.stdout)
	}
	page := content(t, d, "report.html")
	for _, want := range []string{"2 trainings", ">a/run<", "2 trials", "complete, 2 seeds", "propagation / run"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "Not known for") {
		t.Error("the propagation was not recognised by its store")
	}
	must(t, d, "train graph --model sage --epochs 2 --hidden 4 --batch 60 --cache gns:50rows --run c/run")
	must(t, d, "report a/run c/run -o both.html")
	if page := content(t, d, "both.html"); !strings.Contains(page, "% cached") ||
		!strings.Contains(page, "<title>c/run: ") || !strings.Contains(page, "<title>a/run: ") {
		t.Error("trainings on a store and on a graph are not compared")
	}
	must(t, d, "report a/run c/run -o both.svg")
	if drawn := content(t, d, "both.svg"); !strings.HasPrefix(drawn, "<svg") || strings.Count(drawn, "c/run") != 3 ||
		!strings.Contains(drawn, "Test accuracy against the time of an epoch") {
		t.Errorf("%s", drawn)
	}
	// The first content of the cache is loaded before the first epoch.
	if metrics := content(t, d, "c/run/metrics.jsonl"); strings.Contains(metrics, `"cached_rows":0`) ||
		strings.Count(metrics, `"loaded_rows":0`) != 1 {
		t.Errorf("%s", metrics)
	}
	// Without --propagation, the store knows, until it is another or a copy; a file has precedence.
	of := func(options string) string {
		must(t, d, "report a/run -o one.html --force"+options)
		return content(t, d, "one.html")
	}
	if page := of(""); strings.Contains(page, "Not known for") || !strings.Contains(page, "propagation / run") ||
		strings.Contains(page, "≥") {
		t.Error("the store does not say how long its propagation took")
	}
	write(t, d, "hour.json", `{"output": "store", "seconds": 36000}`)
	if page := of(" --propagation hour.json"); !strings.Contains(page, "10 h") {
		t.Error("what was given is not shown")
	}
	if err := d.SetAttribute("store", "propagation-seconds", "7200+"); err != nil {
		t.Fatal(err)
	}
	if page := of(""); !strings.Contains(page, "≥ 2 h") ||
		!strings.Contains(page, "only the last one's time is known") {
		t.Error("the time of a part is shown as that of all")
	}
	must(t, d, "propagate graph -o store --hops 3")
	if page := of(""); !strings.Contains(page, "Not known for run:") || strings.Contains(page, "propagation / run") {
		t.Error("the time of another store is shown")
	}
	write(t, d, "other.json", "{}")
	for line, code := range map[string]int{
		"report a/run":                               exitUsage, // it exists
		"report a/run --force":                       exitDone,
		"report a/run -o store --force":              exitUsage,
		"report a/run -o store/x.html":               exitUsage,
		"report a/run -o x --propagation other.json": exitUsage,
		"report":                exitUsage,
		"report nothing":        exitUsage, // report.html exists
		"report nothing -o x":   exitFailed,
		"report store -o x":     exitFailed,
		"report a/run -o x.svg": exitFailed, // one training is no chart
	} {
		if o := hopfeed(t, d, line); o.code != code {
			t.Errorf("%s: exit status %d, want %d: %s", line, o.code, code, o.stderr)
		}
	}
	metrics := content(t, d, "a/run/metrics.jsonl")
	write(t, d, "a/run/metrics.jsonl", strings.Replace(metrics, "0", "1", 1))
	if o := hopfeed(t, d, "report a/run -o x"); o.code != exitCorrupt ||
		!strings.Contains(o.stderr, "a/run/metrics.jsonl") {
		t.Errorf("damaged metrics: exit status %d: %s", o.code, o.stderr)
	}
	if _, err := d.Stat("x"); err == nil {
		t.Error("a page was written all the same")
	}
}
