package command

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hopfeed/hopfeed/internal/vfs"
)

// twoPreparations are stores of the same data, whose features were imported as they are, and divided by their sums.
func twoPreparations(t *testing.T) *vfs.Mem {
	return disk(t, generateLine, exportLine,
		"import npy arrays -o plain", "propagate plain -o plain-store --hops 2",
		"import npy arrays -o normalized --normalize-features", "propagate normalized -o normalized-store --hops 2")
}

func TestFeaturesThatWerePreparedDifferentlyAreRefused(t *testing.T) {
	d := twoPreparations(t)
	must(t, d, "train plain-store --epochs 2 --hidden 4 --run run")
	must(t, d, "train normalized-store --epochs 2 --hidden 4 --hops 0 --run input")
	must(t, d, "train normalized --model gcn --epochs 2 --hidden 4 --run gcn")
	const want = "its features were imported %s --normalize-features, but the training's %s"
	plain, normalized := fmt.Sprintf(want, "without", "with"), fmt.Sprintf(want, "with", "without")
	for line, want := range map[string]string{
		"evaluate --checkpoint run normalized-store":            normalized,
		"evaluate --checkpoint run normalized-store --rows all": normalized,
		"evaluate --checkpoint input plain-store":               plain,
		"evaluate --checkpoint gcn plain":                       plain,
		"predict --checkpoint run normalized-store -o out.csv":  normalized,
		"predict --checkpoint run normalized -o out.csv":        normalized,
		"predict --checkpoint gcn plain -o out.csv":             plain,
		"train normalized-store --config run/config.yaml": normalized + `: import them the same way (and ` +
			`propagate again), or remove the line "prepared.normalize_features"`,
		"train plain --config gcn/config.yaml":                     plain,
		"tune normalized-store --config run/config.yaml -o o":      normalized,
		"train normalized-store --config run/config.yaml --tune 2": normalized,
	} {
		if o := hopfeed(t, d, line); o.code != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %s", line, o.code, o.stderr)
		}
	}
	config := content(t, d, "run/config.yaml")
	write(t, d, "open.yaml", strings.Replace(config, "prepared.normalize_features: false\n", "", 1))
	if o := must(t, d, "train normalized-store --config open.yaml"); !strings.Contains(o.stderr,
		"--config is of a training on other data than normalized-store now has") {
		t.Errorf("a configuration that was opened: %s", o.stderr)
	}
	// Other hops of the same graph are the same features.
	must(t, d, "propagate plain -o longer --hops 3 --rows all --seed 3")
	if o := must(t, d, "evaluate --checkpoint run longer"); strings.Contains(o.stdout, "warning") {
		t.Errorf("a store of the same graph: %s", o.stdout)
	}
	// What was normalized stays so when it is exported.
	must(t, d, "export npy normalized -o out")
	must(t, d, "import npy out -o again")
	must(t, d, "evaluate --checkpoint gcn again")
}

func TestATrainingDoesNotGoOnWithOtherFeatures(t *testing.T) {
	d := twoPreparations(t)
	line := "train store --model sgc --epochs 6 --run run --save-every 0s"
	must(t, d, "propagate plain -o store --hops 2")
	interruptedAtSave(t, d, 3, line)
	must(t, d, "propagate normalized -o store --hops 2 --force")
	if o := hopfeed(t, d, line); o.code != exitUsage ||
		!strings.Contains(o.stderr,
			"is on other features: store: its features were imported with --normalize-features") {
		t.Errorf("status %d, %s", o.code, o.stderr)
	}
	// Nor do trials.
	write(t, d, "rates.yaml", "lr: [0.1, 0.01]\n")
	must(t, d, "train store --model sgc --epochs 2 --grid rates.yaml --run trials")
	if err := d.Remove("trials/checkpoint.json"); err != nil {
		t.Fatal(err)
	}
	must(t, d, "tune store --model sgc --trial-epochs 2 --space rates.yaml --budget 2 -o tuning")
	must(t, d, "propagate plain -o store --hops 2 --force")
	if o := hopfeed(t, d,
		"tune store --model sgc --trial-epochs 2 --space rates.yaml --budget 2 -o tuning"); o.code == exitDone ||
		!strings.Contains(o.stderr, "other data, of prepared.normalize_features false instead of true") {
		t.Errorf("trials of other data: status %d, %s", o.code, o.stderr)
	}
}

// TestWhatIsNotKnownOfFeaturesIsSaid for stores that an earlier version has made.
func TestWhatIsNotKnownOfFeaturesIsSaid(t *testing.T) {
	d := twoPreparations(t)
	forget := func(dir string) {
		manifest := content(t, d, dir+"/manifest.json")
		cut := regexp.MustCompile(`,\s*"normalize_features": "[a-z]*"`).ReplaceAllString(manifest, "")
		if cut == manifest {
			t.Fatalf("%s: %s", dir, manifest)
		}
		write(t, d, dir+"/manifest.json", sealed(cut))
	}
	must(t, d, "train plain-store --epochs 2 --hidden 4 --run known")
	forget("plain-store")
	must(t, d, "train plain-store --epochs 2 --hidden 4 --run unknown")
	for line, want := range map[string]string{
		"evaluate --checkpoint known plain-store":   "",
		"evaluate --checkpoint unknown plain-store": "",
		"evaluate --checkpoint unknown normalized-store": "warning  the features of normalized-store were imported " +
			"with --normalize-features, and of the training that is not recorded",
	} {
		if o := must(t, d, line); strings.Contains(o.stdout, "warning") != (want != "") ||
			!strings.Contains(o.stdout, want) {
			t.Errorf("%s: %s", line, o.stdout)
		}
	}
	forget("normalized-store")
	for line, want := range map[string]string{
		"evaluate --checkpoint known normalized-store --json": "the features of the training were " +
			"imported without --normalize-features, and of normalized-store that is not recorded",
		"predict --checkpoint unknown normalized-store -o out.csv --json": "is recorded neither of the training nor " +
			"of normalized-store",
	} {
		if warnings := fmt.Sprint(object(t, must(t, d, line))["warnings"]); !strings.Contains(warnings, want) {
			t.Errorf("%s: %s", line, warnings)
		}
	}
	// A store that grows records what is known of its graph.
	must(t, d, "propagate plain -o plain-store --hops 3")
	if o := hopfeed(t, d, "evaluate --checkpoint known plain-store"); o.code != exitDone ||
		!strings.Contains(content(t, d, "plain-store/manifest.json"), `"normalize_features": "false"`) {
		t.Errorf("status %d, %s", o.code, o.stderr)
	}
}

func TestOtherColumnsAndEdgesAreSaid(t *testing.T) {
	d := vfs.NewMem()
	table := func(names string) string {
		text := "node,label,split," + names + "\n"
		for v := range 30 {
			height, width := v%2, v
			if names == "width,height" {
				height, width = width, height
			}
			text += fmt.Sprintf("%d,%d,%s,%d,%d\n", v, v%2, []string{"train", "valid", "test"}[v%3], height, width)
		}
		return text
	}
	edges := "source,destination\n"
	for v := range 30 {
		edges += fmt.Sprintf("%d,%d\n", v, v*7%30)
	}
	write(t, d, "edges.csv", edges)
	for name, columns := range map[string]string{"one": "height,width", "other": "width,height"} {
		write(t, d, name+".csv", table(columns))
		must(t, d, "import csv edges.csv -o "+name+" --directed --node-table "+name+".csv")
	}
	must(t, d, "import csv edges.csv -o both --undirected --node-table one.csv")
	must(t, d, "train one --model gcn --hidden 4 --epochs 1 --run gcn")
	for line, want := range map[string]string{
		"evaluate --checkpoint gcn one": "",
		"evaluate --checkpoint gcn other": "warning  the features of other are the columns width, " +
			"height, but the training's were height, width",
		"evaluate --checkpoint gcn both": "warning  the edges of both are not directed, but the " +
			"training's were directed",
		"predict --checkpoint gcn both -o out.csv": "warning  the edges of both are not directed, but the " +
			"training's were directed",
		"train both --config gcn/config.yaml --epochs 1": "--config: the edges of both are not directed, but the " +
			"training's were directed",
	} {
		if o := must(t, d, line); !strings.Contains(o.stdout+o.stderr, want) || want == "" &&
			strings.Contains(o.stdout, "warning") {
			t.Errorf("%s: %s%s", line, o.stdout, o.stderr)
		}
	}
}
