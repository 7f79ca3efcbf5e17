package preprop

import "time"

// account says where the time of a job goes.
type account struct {
	writing time.Duration // matrices to files, beside other work
	waiting time.Duration // of other work, for these writes to end
}
