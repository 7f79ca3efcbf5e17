package main

import "github.com/spf13/cobra"

func newBenchCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast this machine does the parts of the work",
	}
	c.AddCommand(newBenchLoadCommand(a), newBenchPropagateCommand(a), newBenchAblationCommand(a))
	return c
}
