package main

// Help texts of flags that several commands have. A flag means the same wherever it
// appears, and says so in the same words.
const (
	batchUsage       = "rows of a batch"
	chunkRowsUsage   = "rows that are reshuffled together (default the rows of a stored chunk)"
	configUsage      = "YAML file with the values of flags, such as config.yaml of a run"
	dtypeUsage       = "type that features are stored in: float32, float16 or bfloat16"
	forceUsage       = "replace existing output as soon as the new one is complete"
	hardwareUsage    = "machine to plan for, described in a YAML file (default this one)"
	maxMemoryUsage   = "most memory that a training may take (default any)"
	minAccuracyUsage = "least validation accuracy, or other --metric, of a trial (default any)"
	placementUsage   = "where the input lives: auto, device, host or storage"
	roundsUsage      = "number of times that everything is measured"
	scratchUsage     = "folder for scratch files"
	throughputUsage  = "rows by what time: wall, or processor, which other work on the machine changes little, but which does not count waiting"
	splitsUsage      = "npy file [k,n] of splits of the nodes, of which --split chooses one"
)

// fileOutput is the annotation of a flag --output that names a file; others name a directory.
const fileOutput = "hopfeed_output_is_a_file"
