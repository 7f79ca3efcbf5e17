// Command locality draws a3gnn Figure 7: hit rate, time of an epoch and accuracy against the bias towards cached nodes.
// Files are what hopfeed train --sampler locality --bias N --json prints, named N.json; -seconds are epochs that were
// measured apart, one a file. It prints the table.
//
//	go run ./tools/bench/papers/locality -o locality.svg [-seconds 0.19,0.14] 1.json 4.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hopfeed/hopfeed/internal/folder"
	"github.com/hopfeed/hopfeed/internal/vfs"
	"github.com/hopfeed/hopfeed/loader"
	"github.com/hopfeed/hopfeed/tools/chart"
)

// training is what is drawn of a result of train.
type training struct {
	Traffic      loader.Traffic `json:"epoch_traffic"`
	EpochSeconds float64        `json:"epoch_seconds"`
	Test         float64        `json:"test_metric"`
	TestStd      float64        `json:"test_metric_std"`
}

func main() {
	output := flag.String("o", "locality.svg", "file to write")
	apart := flag.String("seconds", "", "epochs that were measured apart")
	flag.Parse()
	if err := draw(vfs.OS(), flag.Args(), *apart, *output); err != nil {
		log.Fatal(err)
	}
}

func draw(fsys vfs.FS, paths []string, apart, output string) error {
	axis := chart.Axis{Name: "bias towards cached nodes", Log: true}
	names := []string{"hit rate (%)", "time of an epoch (s)", "test accuracy (%)"}
	colors := []string{chart.Green, chart.Grey, chart.Red}
	plots := make([]*chart.XY, len(names))
	for i, name := range names {
		plots[i] = &chart.XY{X: axis, Y: chart.Axis{Name: name}, Lines: []chart.Line{{Color: colors[i]}}}
	}
	seconds := strings.Split(apart, ",")
	fmt.Println("| bias | hit rate | feature rows an epoch | MiB from host memory | epoch | test accuracy " +
		"|\n|---|---|---|---|---|---|")
	for k, path := range paths {
		bias, err := strconv.ParseFloat(strings.TrimSuffix(filepath.Base(path), ".json"), 64)
		if err != nil {
			return fmt.Errorf("%s: want a file named by its bias, such as 4.json", path)
		}
		r, err := read(fsys, path)
		if err != nil {
			return err
		}
		if k < len(seconds) && seconds[k] != "" {
			if r.EpochSeconds, err = strconv.ParseFloat(seconds[k], 64); err != nil {
				return err
			}
		}
		fmt.Printf("| %g | %.1f %% | %d | %.1f | %.3f s | %.2f ± %.2f %% |\n", bias, 100*r.Traffic.HitRate(),
			r.Traffic.Rows,
			float64(r.Traffic.HostBytes)/(1<<20), r.EpochSeconds, 100*r.Test, 100*r.TestStd)
		for i, v := range []float64{100 * r.Traffic.HitRate(), r.EpochSeconds, 100 * r.Test} {
			l := &plots[i].Lines[0]
			l.X, l.Y = append(l.X, bias), append(l.Y, v)
			plots[i].Points = append(plots[i].Points,
				chart.Point{X: bias, Y: v, Color: colors[i], Name: fmt.Sprintf("%.4g", v)})
		}
		plots[2].Points[k].Spread = 100 * r.TestStd
	}
	f := chart.Figure{Title: "Sampling towards cached nodes (a3gnn Figure 7)"}
	for _, p := range plots {
		f.Plots = append(f.Plots, p)
	}
	return folder.WriteFiles(fsys, filepath.Dir(output), []string{filepath.Base(output)}, [][]byte{f.File()})
}

func read(fsys vfs.FS, path string) (r training, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return r, err
	}
	defer f.Close()
	return r, json.NewDecoder(io.NewSectionReader(f, 0, math.MaxInt64)).Decode(&r)
}
