package top

import "time"

// shortest is the shortest time between two overviews from which a rate is computed.
const shortest = 10 * time.Second

// arrivals returns how many tasks per minute arrived in each queue between two overviews, which are at most a minute
// apart: the growth of the queue plus the tasks that have ended. Tasks that were cancelled before they ran are not
// counted.
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
