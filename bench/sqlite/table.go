package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"
)

// row is what one contender came to in one mode: medians of its runs.
type row struct {
	Mode    string  `json:"mode"`
	Name    string  `json:"name"`
	Tasks   int     `json:"tasks"`
	Batch   int     `json:"batch"`
	Enqueue float64 `json:"enqueued_per_s"`
	Consume float64 `json:"claimed_and_finished_per_s"`
	Whole   float64 `json:"tasks_per_s"` // through all three
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
	Ratio   float64 `json:"first_is_faster_by"` // the mode's first contender over this one
}

// rates are tasks per second, a run after another.
type rates struct{ enqueue, consume, whole []float64 }

func (r *rates) add(tasks int, enqueue, consume time.Duration) {
	n := float64(tasks)
	r.enqueue = append(r.enqueue, n/enqueue.Seconds())
	r.consume = append(r.consume, n/consume.Seconds())
	r.whole = append(r.whole, n/(enqueue+consume).Seconds())
}

func (r *rates) last() float64 { return r.whole[len(r.whole)-1] }

func (r *rates) median() float64 { return median(r.whole) }

func (r *rates) row(c contender, s setting, first float64) row {
	return row{Mode: s.mode, Name: c.name, Tasks: s.tasks, Batch: s.batch, Enqueue: math.Round(median(r.enqueue)),
		Consume: math.Round(median(r.consume)), Whole: math.Round(r.median()), Lowest: math.Round(slices.Min(r.whole)),
		Highest: math.Round(slices.Max(r.whole)), Ratio: math.Round(first/r.median()*100) / 100}
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

func printTable(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODE\tWHO\tENQUEUED/S\tCLAIMED+FINISHED/S\tTASKS/S\tLOWEST\tHIGHEST\tTUSK IS FASTER BY\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t\n", r.Mode, r.Name, r.Enqueue, r.Consume, r.Whole, r.Lowest, r.Highest, r.Ratio)
	}
	_ = t.Flush() // an error would be stdout's, and who reads it has gone
}
