package ui

// spark is a small chart of counts over time: bars, with the latest on the right.
type spark struct {
	Width, Height int
	Bars          []bar
	Total, Most   int64
}

type bar struct{ X, Y, Width, Height int }

const (
	sparkBars   = 24
	sparkHeight = 22
	barWidth    = 4
)

// sparkOf draws counts, with several counts per bar. Any count above zero is visible.
func sparkOf(counts []int64) *spark {
	s := &spark{Width: sparkBars*(barWidth+1) - 1, Height: sparkHeight}
	sums := make([]int64, sparkBars)
	for i, n := range counts {
		sums[i*sparkBars/len(counts)] += n
		s.Total += n
	}
	for _, n := range sums {
		s.Most = max(s.Most, n)
	}
	for i, n := range sums {
		height := 1
		if n > 0 {
			height = max(int(n*sparkHeight/s.Most), 3)
		}
		s.Bars = append(s.Bars, bar{i * (barWidth + 1), sparkHeight - height, barWidth, height})
	}
	return s
}
