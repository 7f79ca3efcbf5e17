package papers

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hopfeed/hopfeed/placement/collective"
	"github.com/hopfeed/hopfeed/tools/chart"
)

// Swept is a schedule's epoch at one value of a setting that MorphGL's experiments vary, simulated with durations that
// follow from its tables.
type Swept struct {
	Sweep    string  `json:"sweep"`
	Setting  string  `json:"setting"`
	Value    float64 `json:"value"`
	Schedule string  `json:"schedule"`
	// epoch of the schedule, or, of preparation, the profile
	Seconds      float64  `json:"seconds"`
	Choice       float64  `json:"choice_seconds,omitempty"` // of preparation: the choice of the plan, on this machine
	PaperSeconds *float64 `json:"paper_seconds,omitempty"`  // where the paper prints it
	Calibrated   bool     `json:"calibrated"`               // durations follow from this very figure of the paper
	CPUBuffer    int      `json:"cpu_buffer"`
	GPUBuffer    int      `json:"gpu_buffer"`
	Rounds       int      `json:"rounds"` // plans that were simulated: of collective-paper, rounds of feedback
}

// sweeps are the experiments, with the name of what they vary.
var sweeps = map[string]struct {
	about, axis string
	run         func(*sweep) error
}{
	"cores": {"Figure 8: UK on machine B with 2 to 16 cores for a GPU", "processor cores", (*sweep).cores},
	"buffer": {"Figure 9: PA on machine A with GPU buffers of 1 to 64 batches; that larger buffers leave less for " +
		"caches is not simulated", "batches that the GPU buffer holds", (*sweep).buffer},
	"machines": {"Tables 4 and 6: GraphSAGE on machines A, B and C", "machine and data, in the order of the table",
		(*sweep).machines},
	"memory": {"Table 7: UK with GAT on machine D with 12, 16 and 32 GB of device memory", "device memory (GB)",
		(*sweep).memory},
	"preparation": {"Table 8: profiling 1000 batches of each route, or as many as an epoch has, one stage after " +
		"another; after the +, choosing the plan on this machine", "machine and data, in the order of the table",
		(*sweep).preparation},
}

// Sweeps are their names.
func Sweeps() []string { return slices.Sorted(maps.Keys(sweeps)) }

// sweep is one on its way.
type sweep struct {
	name string
	all  []Swept
}

// RunSweep simulates all schedules that are compared, at all values of a setting.
func RunSweep(name string) (SweepTable, error) {
	s := &sweep{name: name}
	err := sweeps[name].run(s)
	return s.all, err
}

// compared are schedules and their names in the paper.
var compared = []struct{ schedule, paper string }{{"cpu", "SALIENT"}, {"gpu", "DUCATI"},
	{"collective-paper", "MorphGL"}, {"collective", "ours"}}

// batchesOf is how many batches of 1024 seeds an epoch has.
func batchesOf(data string) float64 {
	return map[string]float64{"PA": 1_207_179, "TW": 417_000, "UK": 777_000}[data] / 1024
}

func (s *sweep) add(setting string, value float64, d collective.Durations, batches float64, gpuBuffer int,
	published map[string]float64) error {
	for _, of := range compared {
		schedule, err := collective.Find(of.schedule)
		if err != nil {
			return err
		}
		in := collective.Inputs{Durations: d, Batches: int(batches + 0.5), CPUBuffer: 64, GPUBuffer: gpuBuffer}
		c, err := schedule.Choose(in)
		if err != nil {
			return err
		}
		r := Swept{Sweep: s.name, Setting: setting, Value: value, Schedule: of.schedule,
			Seconds: c.Predicted.Total.Seconds(), CPUBuffer: c.Plan.PreparedBuffer(), GPUBuffer: c.Plan.GPUBuffer,
			Rounds: c.Rounds}
		paper := of.paper
		if of.schedule == "collective" {
			paper = "MorphGL"
		}
		if seconds, ok := published[paper]; ok {
			r.PaperSeconds, r.Calibrated = &seconds, paper != "MorphGL"
		}
		s.all = append(s.all, r)
	}
	return nil
}

// settingOf is machine and data of MorphGLSettings.
func settingOf(machine, data string) MorphGL {
	all := MorphGLSettings()
	return all[slices.IndexFunc(all, func(s MorphGL) bool { return s.Machine == machine && s.Data == data })]
}

func (s *sweep) machines() error {
	for i, of := range MorphGLSettings() {
		if err := s.add(of.Name(), float64(i+1), of.Durations, batchesOf(of.Data), 10, of.published()); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) cores() error {
	of := settingOf("B", "UK")
	for cores := 2; cores <= 16; cores += 2 {
		d := of.Durations
		d.Workers = cores
		var published map[string]float64
		if cores == of.Workers {
			published = of.published()
		}
		if err := s.add(fmt.Sprintf("%d cores", cores), float64(cores), d, batchesOf("UK"), 10, published); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) buffer() error {
	of := settingOf("A", "PA")
	for _, batches := range []int{1, 2, 4, 6, 8, 10, 16, 32, 64} {
		var published map[string]float64
		if batches == 10 {
			published = of.published()
		}
		if err := s.add(fmt.Sprintf("buffer of %d", batches), float64(batches), of.Durations, batchesOf("PA"), batches,
			published); err != nil {
			return err
		}
	}
	return nil
}

// memory has the durations of Table 7: T_GBT as printed, T_Model = DUCATI's epoch / n - T_GBT, T_CBT = SALIENT's / n.
// The link is that of Table 5, since all machines have the same.
func (s *sweep) memory() error {
	const workers = 8
	n := batchesOf("UK")
	each := func(seconds float64) time.Duration { return time.Duration(seconds / n * float64(time.Second)) }
	for _, row := range []struct{ gb, salient, ducati, morphGL, gpuBatchMS float64 }{
		{12, 40.97, 54.26, 31.68, 38.80}, {16, 40.76, 49.53, 29.67, 34.78}, {32, 40.21, 48.61, 29.19, 32.99}} {
		d := collective.Durations{CPUBatch: each(row.salient * workers), Workers: workers,
			DMA:      settingOf("B", "UK").Durations.DMA,
			GPUBatch: time.Duration(row.gpuBatchMS * float64(time.Millisecond))}
		d.Model = each(row.ducati) - d.GPUBatch
		published := map[string]float64{"SALIENT": row.salient, "DUCATI": row.ducati, "MorphGL": row.morphGL}
		if err := s.add(fmt.Sprintf("%.0f GB", row.gb), row.gb, d, n, 10, published); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) preparation() error {
	published := map[string]float64{"A-PA": 65.5, "A-TW": 41.0, "A-UK": 67.0, "B-PA": 86.3, "B-TW": 49.6, "B-UK": 76.7,
		"C-PA": 112.2, "C-TW": 63.4, "C-UK": 110.6}
	for i, of := range MorphGLSettings() {
		d, seconds := of.Durations, published[of.Name()]
		batches := int(batchesOf(of.Data) + 0.5)
		profile := time.Duration(min(1000, batches)) * (d.CPUBatch/time.Duration(d.Workers) + d.DMA + d.GPUBatch + 2*d.Model)
		for _, name := range []string{"collective-paper", "collective"} {
			schedule, err := collective.Find(name)
			if err != nil {
				return err
			}
			begun := time.Now()
			c, err := schedule.Choose(collective.Inputs{Durations: d, Batches: batches,
				CPUBuffer: 64, GPUBuffer: 10})
			if err != nil {
				return err
			}
			s.all = append(s.all, Swept{Sweep: s.name, Setting: of.Name(), Value: float64(i + 1), Schedule: name,
				Seconds: profile.Seconds(), Choice: time.Since(begun).Seconds(), PaperSeconds: &seconds,
				CPUBuffer: c.Plan.PreparedBuffer(), GPUBuffer: c.Plan.GPUBuffer, Rounds: c.Rounds})
		}
	}
	return nil
}

// published are the epochs of Table 4.
func (s MorphGL) published() map[string]float64 {
	return map[string]float64{"SALIENT": s.Salient.Seconds(), "DUCATI": s.Ducati.Seconds(), "MorphGL": s.MorphGL.Seconds()}
}

// SweepTable is a sweep as text and as a chart.
type SweepTable []Swept

// Text prints a line for each value and schedule.
func (all SweepTable) Text(w io.Writer) {
	fmt.Fprintln(w, sweeps[all[0].Sweep].about)
	fmt.Fprintln(w, "setting\tschedule\tseconds\tpaper\tbuffers")
	for _, r := range all {
		paper := "-"
		if r.PaperSeconds != nil {
			paper = fmt.Sprintf("%.1f s (%+.0f %%)", *r.PaperSeconds, 100*(r.Seconds / *r.PaperSeconds - 1))
			if r.Calibrated {
				paper += ", calibrated"
			}
		}
		seconds := fmt.Sprintf("%.1f s", r.Seconds)
		if r.Choice > 0 {
			seconds += fmt.Sprintf(" + %.1f s", r.Choice)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d, %d\n", r.Setting, r.Schedule, seconds, paper, r.CPUBuffer, r.GPUBuffer)
	}
}

// Chart draws a line for each schedule, and rings where the paper prints a figure.
func (all SweepTable) Chart() []byte {
	about := sweeps[all[0].Sweep]
	plot := &chart.XY{X: chart.Axis{Name: about.axis}, Y: chart.Axis{Name: "seconds"}}
	f := &chart.Figure{Title: "MorphGL's experiments, simulated", Notes: []string{about.about +
		". Rings are the paper's figures."}, Plots: []chart.Plot{plot}}
	for _, of := range compared {
		line, color := chart.Line{}, chart.Color(len(f.Keys))
		for _, r := range all {
			if r.Schedule != of.schedule {
				continue
			}
			line.X, line.Y, line.Color = append(line.X, r.Value), append(line.Y, r.Seconds), color
			if r.PaperSeconds != nil && of.schedule != "collective" {
				plot.Points = append(plot.Points, chart.Point{X: r.Value, Y: *r.PaperSeconds, Color: color, Mark: chart.Ring,
					About: of.paper + ", " + r.Setting})
			}
		}
		if line.X != nil {
			plot.Lines = append(plot.Lines, line)
			f.Keys = append(f.Keys, chart.Key{Name: of.schedule + " (" + of.paper + ")", Color: color})
		}
	}
	return f.File()
}
