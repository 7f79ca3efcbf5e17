package papers

import (
	"time"

	"github.com/hopfeed/hopfeed/gds/host"
	"github.com/hopfeed/hopfeed/placement/collective"
)

// MorphGL is a machine and a data set of MorphGL's experiments with GraphSAGE: durations of stages as they follow from
// its tables, and the epochs of Table 4.
type MorphGL struct {
	Machine, Data            string
	Workers                  int // processor cores for a GPU
	Salient, Ducati, MorphGL time.Duration
	Durations                collective.Durations
	// Utilization of processor, link and GPU by Table 5, of MorphGL and of DUCATI. DUCATI is always busy on the GPU, so
	// its figures say how much of link and GPU that takes. 0: not published.
	Used       [3]float64
	DucatiUsed [3]float64
}

// Name names machine and data set.
func (s MorphGL) Name() string { return s.Machine + "-" + s.Data }

// Stages are the durations of an emulated machine.
func (s MorphGL) Stages() host.Stages {
	d := s.Durations
	return host.Stages{Workers: d.Workers, CPU: d.CPUBatch, Gather: d.Gather, DMA: d.DMA, Sampling: d.GPUBatch,
		Compute: d.Model}
}

// BatchSeconds is MorphGL's published epoch for each batch: no duration follows from it.
func (s MorphGL) BatchSeconds() float64 { return s.MorphGL.Seconds() / batchesOf(s.Data) }

// Times is the published epoch of a schedule (cpu: SALIENT, gpu: DUCATI) as a multiple of MorphGL's; nil: none.
func (s MorphGL) Times(schedule string) *float64 {
	epoch, published := map[string]time.Duration{"cpu": s.Salient, "gpu": s.Ducati, "collective": s.MorphGL,
		"collective-paper": s.MorphGL}[schedule]
	if !published {
		return nil
	}
	times := epoch.Seconds() / s.MorphGL.Seconds()
	return &times
}

// Utilization of processor, link and GPU by a run of the setting, calibrated by the paper's own for DUCATI: the GPU
// preparing or training counts as DUCATI's does, the link as DUCATI's while a batch is prepared.
func (s MorphGL) Utilization(r collective.Run) (used [3]float64) {
	total := r.Total.Seconds()
	prepared := float64(r.GPUBatches) * s.Durations.GPUBatch.Seconds() / total
	share := s.Durations.GPUBatch.Seconds() / (s.Durations.GPUBatch + s.Durations.Model).Seconds()
	used[0], used[1], used[2] = r.Busy()
	used[1] += prepared * (s.DucatiUsed[1]/share - 1)
	used[2] *= s.DucatiUsed[2]
	return used
}

// MorphGLSettings are the nine of Table 4 (PVLDB 2026). An epoch of SALIENT is n T_CBT, and one of DUCATI
// n (T_UVA + T_Model), with n batches of 1024 seeds. On machine B, T_DMA and T_Model are the shares of
// SALIENT's epoch that link and GPU are busy in Table 5. Machines A and C have the same link, and so the
// same T_DMA. There, T_Model follows from Table 6: its x = (T_CBT - T_Model) / (T_UVA + T_Model) is where
// the second and the third term of Equation 6 are equal.
func MorphGLSettings() (all []MorphGL) {
	link := map[string]float64{"PA": 0.261 * 53.63, "TW": 0.394 * 19.34, "UK": 0.343 * 33.40} // n T_DMA
	for _, s := range []struct {
		machine, data            string
		workers                  int
		salient, ducati, morphGL float64
		x, gpu                   float64 // of Table 6, or the share of Table 5
		used, ducatiUsed         [3]float64
	}{
		{"A", "PA", 12, 29.12, 22.75, 17.02, 0.65, 0, [3]float64{}, [3]float64{}},
		{"A", "TW", 12, 10.89, 16.69, 10.33, 0.29, 0, [3]float64{}, [3]float64{}},
		{"A", "UK", 12, 18.62, 35.59, 16.62, 0.19, 0, [3]float64{}, [3]float64{}},
		{"B", "PA", 8, 53.63, 20.44, 19.40, 2.00, 0.216, [3]float64{8.01 / 8, 0.330, 0.693},
			[3]float64{1.01 / 8, 0.129, 0.669}},
		{"B", "TW", 8, 19.34, 14.11, 10.14, 1.12, 0.393, [3]float64{7.99 / 8, 0.515, 0.874},
			[3]float64{1. / 8, 0.235, 0.877}},
		{"B", "UK", 8, 33.40, 30.49, 21.24, 0.83, 0.304, [3]float64{7.98 / 8, 0.459, 0.887},
			[3]float64{1. / 8, 0.252, 0.864}},
		{"C", "PA", 6, 56.58, 38.30, 31.57, 0.90, 0, [3]float64{}, [3]float64{}},
		{"C", "TW", 6, 22.27, 26.04, 19.22, 0.41, 0, [3]float64{}, [3]float64{}},
		{"C", "UK", 6, 38.33, 51.47, 34.65, 0.36, 0, [3]float64{}, [3]float64{}},
	} {
		model := s.salient - s.x*s.ducati
		if s.gpu > 0 {
			model = s.gpu * s.salient
		}
		seconds := func(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }
		each := func(v float64) time.Duration { return seconds(v / batchesOf(s.data)) }
		all = append(all, MorphGL{
			Machine: s.machine, Data: s.data, Workers: s.workers,
			Salient: seconds(s.salient), Ducati: seconds(s.ducati), MorphGL: seconds(s.morphGL),
			Durations: collective.Durations{
				CPUBatch: each(s.salient * float64(s.workers)), Workers: s.workers,
				DMA: each(link[s.data]), GPUBatch: each(s.ducati - model), Model: each(model),
			},
			Used: s.used, DucatiUsed: s.ducatiUsed,
		})
	}
	return all
}
