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

// speed prints the processor time of our decoder over that of parquet-go: the median of the rounds, the
// least and the greatest. Both read all values from memory and add them up, parquet-go's as slices.
func speed(paths []string) error {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var read [2]func() (float64, error)
		for i, l := range libraries {
			if read[i], err = l.sum(data); err != nil {
				return err
			}
		}
		var ratios []float64
		for range rounds {
			var took [2]time.Duration
			var sums [2]float64
			for i, l := range libraries {
				runtime.GC() // of what the other has left
				start := machine.CPUTime()
				if sums[i], err = read[i](); err != nil {
					return fmt.Errorf("%s: %s: %w", path, l.name, err)
				}
				took[i] = machine.CPUTime() - start
			}
			// Sums of pages and of cells round differently.
			if math.Abs(sums[0]-sums[1]) > 1e-9*math.Abs(sums[0]) {
				return fmt.Errorf("%s: sums of %v and %v", path, sums[0], sums[1])
			}
			ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
		}
		slices.Sort(ratios)
		fmt.Printf("%s: ours / parquet-go %.2f (%.2f to %.2f)\n", filepath.Base(path), ratios[rounds/2], ratios[0], ratios[rounds-1])
	}
	return nil
}
