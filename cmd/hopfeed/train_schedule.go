package main

import "fmt"

// formerSchedule is --schedule, which once was what is now --lr-schedule.
type formerSchedule struct{}

func (formerSchedule) Set(value string) error {
	if isLearningRateSchedule(value) {
		return fmt.Errorf("how the learning rate changes is now --lr-schedule %s", value)
	}
	return fmt.Errorf("there is no schedule %q", value)
}

func (formerSchedule) String() string { return "" }
func (formerSchedule) Type() string   { return "string" }
