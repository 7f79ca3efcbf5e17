package main

import (
	"errors"
	"fmt"
	"strconv"
)

// Help texts of flags that several commands have. A flag means the same wherever it
// appears, and says so in the same words.
const (
	batchUsage  = "rows of a batch"
	fanoutUsage = "in-neighbours to sample of each node (ladies, fastgcn: nodes of a layer), a number for each " +
		"layer; the first is nearest the seed nodes, -1 is all"
	chunkRowsUsage   = "rows that are reshuffled together (default the rows of a stored chunk)"
	configUsage      = "YAML file with the values of flags, such as config.yaml of a run"
	dtypeUsage       = "type that features are stored in: float32, float16 or bfloat16"
	forceUsage       = "replace existing output as soon as the new one is complete"
	hardwareUsage    = "machine to plan for, described in a YAML file (default this one)"
	maxMemoryUsage   = "most memory that a training may take; 0: any"
	minAccuracyUsage = "least validation accuracy, or other --metric, of a trial (default any)"
	placementUsage   = "where the input lives: auto, device, host or storage"
	roundsUsage      = "number of times that everything is measured"
	scratchUsage     = "folder for scratch files"
	throughputUsage  = "rows by what time: wall, or processor, which other work on the machine changes little, but " +
		"which does not count waiting"
	splitsUsage = "npy file [k,n] with k splits of the nodes; --split chooses one"
)

// fileOutput is the annotation of a flag --output that names a file; others name a directory.
const fileOutput = "hopfeed_output_is_a_file"

// optionalInt is a flag for a number from 1 to most; 0 and "" are no value.
type optionalInt struct {
	value *int
	most  int
}

func (f optionalInt) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > f.most {
		return fmt.Errorf("want a number from 1 to %d", f.most)
	}
	*f.value = n
	return nil
}

func (f optionalInt) String() string {
	if f.value == nil || *f.value == 0 {
		return ""
	}
	return strconv.Itoa(*f.value)
}

func (f optionalInt) Type() string { return "number" }

// biasFlag is a number from 1 on; 0 and "" are no value.
type biasFlag float64

func (f *biasFlag) Set(text string) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 1) {
		return errors.New("want 1 (no preference) or more")
	}
	*f = biasFlag(v)
	return nil
}

func (f *biasFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*f), 'g', -1, 64)
}

func (f *biasFlag) Type() string { return "factor" }
