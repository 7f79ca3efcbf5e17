package main

import "github.com/spf13/cobra"

func newBenchCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast this machine loads, trains and propagates, simulate schedules, and compare searches",
	}
	c.AddCommand(newBenchLoadCommand(a), newBenchPropagateCommand(a), newBenchAblationCommand(a), newBenchScheduleCommand(a), newBenchTuneCommand(a), newBenchModesCommand(a))
	refuseUnknown(c)
	return c
}
