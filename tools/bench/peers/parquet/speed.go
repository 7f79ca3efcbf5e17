package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/internal/machine"
)

const rounds = 5

// speed prints the processor time of our decoder over that of parquet-go: the median of the rounds, the least and the
// greatest. Both read all values from memory and add them up, parquet-go's as slices.
func speed(paths []string) error {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read := make([]func() (float64, error), len(libraries))
		for i, l := range libraries {
			if read[i], err = l.sum(data); err != nil {
				return err
			}
		}
		ratios := make([][]float64, len(libraries))
		for range rounds {
			took, sums := make([]time.Duration, len(libraries)), make([]float64, len(libraries))
			for i, l := range libraries {
				runtime.GC() // of what the other has left
				start := machine.CPUTime()
				if sums[i], err = read[i](); err != nil {
					return fmt.Errorf("%s: %s: %w", path, l.name, err)
				}
				took[i] = machine.CPUTime() - start
			}
			// Sums of pages and of cells round differently.
			for i, l := range libraries[1:] {
				if math.Abs(sums[0]-sums[i+1]) > 1e-9*math.Abs(sums[0]) {
					return fmt.Errorf("%s: %s: sums of %v and %v", path, l.name, sums[0], sums[i+1])
				}
				ratios[i+1] = append(ratios[i+1], took[0].Seconds()/took[i+1].Seconds())
			}
		}
		for i, l := range libraries[1:] {
			r := ratios[i+1]
			slices.Sort(r)
			fmt.Printf("%s: ours / %s %.2f (%.2f to %.2f)\n", filepath.Base(path), l.name, r[rounds/2], r[0],
				r[rounds-1])
		}
	}
	return nil
}
