package top

import "time"

// shortest is the least time between two looks that a rate is made of.
const shortest = 10 * time.Second

// arrivals says how many tasks a minute came to each queue between two looks, at most a minute apart: as many as the
// queue has more, and as many as have ended. Tasks that were called off before they ran are missing.
func arrivals(before, now Overview) map[string]float64 {
	span := now.At.Sub(before.At)
	if span < shortest {
		return nil
	}
	came := map[string]int64{}
	for sign, o := range map[int64]Overview{-1: before, 1: now} {
		for _, q := range o.Queues {
			for _, n := range q.Tasks {
				came[q.Name] += sign * n
			}
		}
		for _, s := range o.Stats {
			if !s.At.Before(before.At.Truncate(time.Minute)) {
				came[s.Queue] += sign * (s.Completed + s.Discarded + s.Cancelled)
			}
		}
	}
	rates := map[string]float64{}
	for queue, n := range came {
		rates[queue] = float64(max(n, 0)) / span.Minutes()
	}
	return rates
}
