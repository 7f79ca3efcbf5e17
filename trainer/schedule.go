package trainer

// schedules are the ways that the learning rate changes while a model is trained. To add one, write
// it in a file of its own, and add it here.
var schedules = map[string]schedule{"constant": constant}

const defaultSchedule = "constant"

// schedule is what the learning rate is multiplied by after a number of epochs, with a fraction, of
// epochs in all. It is asked for every step.
type schedule func(passed float64, epochs int) float64

func constant(float64, int) float64 { return 1 }
