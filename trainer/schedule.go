package trainer

import "math"

// schedules are the ways that the learning rate changes while a model is trained.
var schedules = map[string]schedule{"constant": constant, "cosine": cosine, "step": stepwise}

const defaultSchedule = "constant"

// schedule is the factor of the learning rate after passed epochs, a fraction, of epochs in all. It is called for every
// step.
type schedule func(passed float64, epochs int) float64

func constant(float64, int) float64 { return 1 }

// cosine goes down to zero along half a period of a cosine (Loshchilov and Hutter 2017, without
// restarts).
func cosine(passed float64, epochs int) float64 {
	return (1 + math.Cos(math.Pi*passed/float64(epochs))) / 2
}

// stepwise goes down to a tenth after half of the epochs, and to a hundredth after three quarters.
func stepwise(passed float64, epochs int) float64 {
	switch part := passed / float64(epochs); {
	case part < 0.5:
		return 1
	case part < 0.75:
		return 0.1
	}
	return 0.01
}

// warmUp is another factor of the learning rate, which grows over so many epochs: linearly, from 1 / (epochs + 1) to 1
// (after Goyal et al. 2017, section 2.2).
func warmUp(passed, epochs float64) float64 { return min(1, (1+passed)/(1+epochs)) }
