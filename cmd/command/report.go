package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/units"
	"github.com/hopfeed/hopfeed/tools/report"
)

type reportOptions struct {
	output      string
	propagation []string
	force       bool
}

func newReportCommand(a *app) *cobra.Command {
	var o reportOptions
	c := a.verb("report RUN...", "Write a page about trainings: curves, times, comparison",
		`Report writes one HTML file about trainings that train --run has saved, finished or not: results,
settings that differ, learning curves, time by stage, predicted beside measured epochs, and trials. The file has
its charts in it, and needs no network. An output that ends in .svg is one chart: the test metric against the time
of an epoch.

The time of propagation is an attribute of the store's folder. Copies without attributes lose it: then give
--propagation the output of propagate --json. Each such file counts for the trainings on the store that it names.`, o.do)
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "report.html", "file to write")
	_ = f.SetAnnotation("output", fileOutput, []string{"true"}) // the flag is there
	f.StringSliceVar(&o.propagation, "propagation", nil,
		"files with the output of propagate --json, for stores that have lost the time of their propagation")
	f.BoolVar(&o.force, "force", false, forceUsage)
	return c
}

// reported is the result of report.
type reported struct {
	Runs   []string `json:"runs"`
	Output string   `json:"output"`
}

func (r reported) Text(w io.Writer) {
	fmt.Fprintf(w, "saved\t%s, about %s\n", units.Printable(r.Output), units.Count(int64(len(r.Runs)), "training"))
}

func (o *reportOptions) do(_ context.Context, a *app, dirs []string) (result, error) {
	if info, err := a.fs.Stat(o.output); err == nil && (info.IsDir() || !o.force) {
		return nil, fmt.Errorf("%s: %w (give another file, or --force)", o.output, format.ErrExists)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := a.refuseWithin(o.output); err != nil {
		return nil, err
	}
	for _, run := range dirs { // to which a training that goes on adds nothing but its own
		if err := a.refuseInside(o.output, run); err != nil {
			return nil, err
		}
	}
	seconds, err := a.readPropagations(o.propagation)
	if err != nil {
		return nil, err
	}
	runs, err := report.Load(a.fs, dirs, seconds)
	if err != nil {
		return nil, err
	}
	file := []byte(nil)
	if strings.HasSuffix(o.output, ".svg") {
		file, err = report.Chart(runs)
	} else {
		file = report.Page(runs)
	}
	if err == nil {
		err = folder.WriteFiles(a.fs, filepath.Dir(o.output), []string{filepath.Base(o.output)}, [][]byte{file})
	}
	if err != nil {
		return nil, err
	}
	return reported{dirs, o.output}, nil
}

// readPropagations reads the seconds of propagations, by folder of the store.
func (a *app) readPropagations(paths []string) (map[string]float64, error) {
	seconds := map[string]float64{}
	for _, path := range paths {
		text, err := a.readSmall(path)
		if err != nil {
			return nil, err
		}
		var p struct {
			Output  string
			Seconds float64
		}
		if err := json.Unmarshal(text, &p); err != nil || p.Output == "" || !(p.Seconds > 0) {
			return nil, usagef("--propagation %s: it is not what propagate --json prints", path)
		}
		store, err := a.fs.Resolve(p.Output)
		if err != nil {
			return nil, err
		}
		seconds[store] += p.Seconds
	}
	return seconds, nil
}
