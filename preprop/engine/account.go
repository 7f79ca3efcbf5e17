package engine

import "time"

// TimeAccount says where the seconds of a job went. Writing runs beside the others: what it adds to the whole is
// Waiting. The rest of the whole is writing the rows of the store, checkpoints, and scratch files of earlier runs.
type TimeAccount struct {
	Planning  float64 `json:"planning"`  // opening the graph, choosing rows, measuring the machine
	Preparing float64 `json:"preparing"` // reading topologies, and computing factors of operators
	Reading   float64 `json:"reading"`   // the input
	// FirstUse is taking the memory of the matrices from the machine, but for what of it was done beside Reading; 0 on
	// systems that cannot be asked for it: it is then within Reading and Hops.
	FirstUse   float64 `json:"first_use"`
	Hops       float64 `json:"hops"`
	Transfers  float64 `json:"transfers"` // to and from a device, which are part of Hops, or ran beside them
	Writing    float64 `json:"writing"`
	Waiting    float64 `json:"waiting"`
	Publishing float64 `json:"publishing"`
	// Faster says what would make the job faster: "disk", "cores" or "memory" (with which there would be one panel).
	Faster string `json:"faster_with"`
}

// Of is the account of a job whose hops took so many seconds.
func (t TimeAccount) Of(hops float64, panels int) TimeAccount {
	t.Hops, t.Faster = hops, "cores"
	switch disk := t.Reading + t.Waiting + t.Publishing; {
	case panels > 1 && disk > hops:
		t.Faster = "memory"
	case disk > hops:
		t.Faster = "disk"
	}
	return t
}

// Timed calls f, and adds the seconds that it takes to sum.
func Timed(sum *float64, f func() error) error {
	start := time.Now()
	defer func() { *sum += time.Since(start).Seconds() }()
	return f()
}
