package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hopfeed/hopfeed/loader/cache"
	"github.com/hopfeed/hopfeed/loader/sampling"
	"github.com/hopfeed/hopfeed/placement"
	"github.com/hopfeed/hopfeed/tools/scheduler"
	"github.com/hopfeed/hopfeed/tools/training"
)

const (
	biasUsage    = "locality: how many times as likely as others cached nodes are sampled; 1: no preference"
	debiasUsage  = "locality: estimates without bias"
	replaceUsage = "draw with replacement (neighbor, locality, and ladies and fastgcn without debias)"
)

// declareSampling adds the flags of sampled batches of a graph.
func declareSampling(f *pflag.FlagSet, s *training.Sampling) {
	f.StringVar(&s.Sampler, "sampler", "", "sampler of batches of a graph, such as neighbor (the default), labor, "+
		"ladies, fastgcn, saint-node or full; hopfeed help sample lists all (full, without --batch: all training "+
		"nodes at once; saint-node, saint-edge, saint-rw: --batch is a number of draws)")
	f.IntSliceVar(&s.Fanouts, "fanout", nil, fanoutUsage+" (default 15,10,5, as many as --layers)")
	f.StringVar(&s.Cache, "cache", "", "cache of feature rows, POLICY:SIZE, such as degree:1GiB or lru:20000rows: "+
		strings.Join(cache.Policies(), ", "))
	f.Float64Var(&s.Bias, "bias", 0, biasUsage)
	f.BoolVar(&s.Debias, "debias", false, debiasUsage)
	f.BoolVar(&s.Replace, "replace", false, replaceUsage)
	f.IntVar(&s.Workers, "workers", 0, "threads that sample batches (default as many as --threads)")
	f.IntVar(&s.Buffers, "buffers", 0, fmt.Sprintf("batches that the device has memory for: one is trained on, the "+
		"others wait (default %d)", placement.Buffers))
	f.IntVar(&s.Partitions, "partitions", 0, "divide the nodes into parts with few edges between them; training "+
		"samples no edge between parts, and each device trains on its own (a3gnn Algorithm 1; default 1)")
	f.StringVar(&s.PartitionFile, "partition-file", "", "npy file [n] with the part of each node, as METIS finds them, "+
		"instead of --partitions")
	atLeast(f, 1, "bias")
	within(f, 1, sampling.MostPartitions, "partitions")
	within(f, 1, training.MaxWorkers, "workers")
	within(f, 1, training.MostBuffers, "buffers")
}

// declareSchedule adds the flags of the schedule of a graph's batches.
func declareSchedule(f *pflag.FlagSet, s *training.Schedule) {
	f.StringVar(&s.Name, "schedule", "",
		"whether processor or device prepares the batches of a graph, and when: "+
			strings.Join(training.ScheduleNames(), ", ")+" (default: the processor, ahead of training)")
	checkFlag(f, "schedule", func(name string) error {
		if isLearningRateSchedule(name) { // which --schedule once was
			return fmt.Errorf("how the learning rate changes is now --lr-schedule %s", name)
		}
		return oneOf("schedule", name, training.ScheduleNames()...)
	})
	declareSchedulePlan(f, s)
}

// declareSchedulePlan adds the flags of the plan of a schedule.
func declareSchedulePlan(f *pflag.FlagSet, s *training.Schedule) {
	const by = scheduler.MultiQueue
	f.Float64Var(&s.CPUShare, "cpu-share", -1,
		"schedule mixed: share of the batches that the processor prepares (default the best)")
	f.Lookup("cpu-share").DefValue = "0" // which help leaves out
	f.IntVar(&s.ProfileBatches, "profile-batches", 0, "batches to measure, by processor and device each, before a "+
		"schedule is planned (default 10)")
	f.IntVar(&s.Queue, "queue", 0, "schedule "+by+": batches that wait for each device on the host, and as many on "+
		"the device "+
		"(default by measurement)")
	f.IntVar(&s.Gradients, "gradients", 0,
		"schedule "+by+": batches whose gradients wait on each device; 1: gradients are never stale "+
			"(default by measurement)")
	f.IntVar(&s.SyncEvery, "sync-every", 0,
		"schedule "+by+": batches from one synchronisation of devices to the next; 1: gradients are "+
			"never stale (default by measurement)")
	f.StringVar(&s.Updates, "updates", training.Planned, "schedule "+by+": when gradients that wait are applied: "+
		training.Planned+", after a fixed number of batches, or "+training.OnArrival+", as soon as those of all "+
		"devices are there (RaCoM as printed), so that a model depends on timing")
	among(f, "updates", training.Planned, training.OnArrival)
}

// graphFlags are for models that read a graph, storeFlags for models that read a hop store.
var (
	graphFlags = append([]string{"sampler", "fanout", "cache", "bias", "debias", "replace", "partitions", "partition-file",
		mapFlag, "workers", "buffers", scratchFlag}, scheduleFlags...)
	storeFlags = []string{"hops", "operator", "shuffle", "chunk-rows"}
)

// checkInputFlags refuses flags that are not for what the model reads.
func (o *trainOptions) checkInputFlags() error {
	readsGraph, err := o.ReadsGraph()
	if err != nil {
		return err
	}
	if !readsGraph {
		for _, flag := range graphFlags {
			if o.flags.Changed(flag) {
				return usagef("--%s: %s reads a hop store, so no batches are sampled (it is for models that read a "+
					"graph, such as sage)",
					flag, o.Model)
			}
		}
		return nil
	}
	if o.Importance {
		return usagef("--importance: %s reads a graph, which is one matrix (it is for models that read a hop store)", o.Model)
	}
	for _, flag := range storeFlags {
		f := o.flags.Lookup(flag)
		if f.Changed && !slices.Contains([]string{placement.Auto, "0"}, f.Value.String()) { // which configurations have
			return usagef("--%s: %s reads a graph, which has no hops of its own (it is for models that read a hop "+
				"store)", flag, o.Model)
		}
	}
	return nil
}
