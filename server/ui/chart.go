package ui

// picture is the chart for those without scripts: bars of what was completed, and of
// what failed beside them.
type picture struct {
	Width, Height int
	Done, Fails   []bar
}

const (
	pictureWidth  = 960
	pictureHeight = 180
)

// Picture draws the series.
func (c chartData) Picture() picture {
	p := picture{Width: pictureWidth, Height: pictureHeight}
	most := int64(5)
	for i := range c.Times {
		most = max(most, c.Done[i], c.Fails[i])
	}
	step := pictureWidth / max(len(c.Times), 1)
	draw := func(n int64, x int) bar {
		height := int(n * pictureHeight / most)
		if n > 0 {
			height = max(height, 2)
		}
		return bar{x, pictureHeight - height, max(step*2/5, 1), height}
	}
	for i := range c.Times {
		p.Done = append(p.Done, draw(c.Done[i], i*step))
		p.Fails = append(p.Fails, draw(c.Fails[i], i*step+step*2/5))
	}
	return p
}
