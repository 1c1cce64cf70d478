package ui

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// graph is a picture of nodes that come after others: layers from left to right.
type graph struct {
	Width, Height int
	Nodes         []*node
	Edges         []edge
}

// node is a box of a graph with two lines of text.
type node struct {
	Title, Sub string // cut to fit
	Label      string // everything, for those who cannot see it
	Class, To  string
	X, Y       int

	after []*node
	layer int
	place float64 // within its layer, while it is being found
}

type edge struct{ Path, Class string }

const (
	nodeWidth, nodeHeight = 172, 46
	layerGap, rowGap      = 56, 14
	margin                = 6
	titleRunes, subRunes  = 21, 26
	sweeps                = 6
)

// MaxDrawn is how many nodes a graph has at most: more would not be seen, and are in the table.
const MaxDrawn = 200

// draw finds a place for every node; nodes come after those in their after.
func draw(nodes []*node) *graph {
	g := &graph{Nodes: nodes}
	layers := layersOf(nodes)
	arrange(layers)
	rows := 0
	for _, layer := range layers {
		rows = max(rows, len(layer))
	}
	for x, layer := range layers {
		top := margin + (rows-len(layer))*(nodeHeight+rowGap)/2
		for y, n := range layer {
			n.X, n.Y = margin+x*(nodeWidth+layerGap), top+y*(nodeHeight+rowGap)
			n.Title, n.Sub = cutRunes(n.Title, titleRunes), cutRunes(n.Sub, subRunes)
		}
	}
	g.Width = 2*margin + len(layers)*nodeWidth + max(len(layers)-1, 0)*layerGap
	g.Height = 2*margin + rows*nodeHeight + max(rows-1, 0)*rowGap
	for _, n := range nodes {
		for _, p := range n.after {
			x1, y1, x2, y2 := p.X+nodeWidth, p.Y+nodeHeight/2, n.X, n.Y+nodeHeight/2
			bend := max((x2-x1)/2, layerGap/2)
			g.Edges = append(g.Edges, edge{fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2-4, y2), p.Class})
		}
	}
	return g
}

// layersOf puts every node behind all that it comes after.
func layersOf(nodes []*node) (layers [][]*node) {
	open, children := map[*node]int{}, map[*node][]*node{}
	var ready []*node
	for _, n := range nodes {
		if open[n] = len(n.after); open[n] == 0 {
			ready = append(ready, n)
		}
		for _, p := range n.after {
			children[p] = append(children[p], n)
		}
	}
	for len(ready) > 0 {
		n := ready[0]
		ready = ready[1:]
		for len(layers) <= n.layer {
			layers = append(layers, nil)
		}
		layers[n.layer] = append(layers[n.layer], n)
		delete(open, n)
		for _, c := range children[n] {
			c.layer = max(c.layer, n.layer+1)
			if open[c]--; open[c] == 0 {
				ready = append(ready, c)
			}
		}
	}
	var rest []*node // a cycle: no engine makes one, and no page should hang on one
	for _, n := range nodes {
		if _, left := open[n]; left {
			n.layer = len(layers)
			rest = append(rest, n)
		}
	}
	if len(rest) > 0 {
		layers = append(layers, rest)
	}
	return layers
}

// arrange sorts each layer by where its neighbours are, back and forth, so that
// few edges cross.
func arrange(layers [][]*node) {
	children := map[*node][]*node{}
	for _, layer := range layers {
		for _, n := range layer {
			for _, p := range n.after {
				children[p] = append(children[p], n)
			}
		}
	}
	number := func(layer []*node) {
		for i, n := range layer {
			n.place = float64(i) - float64(len(layer)-1)/2
		}
	}
	for _, layer := range layers {
		number(layer)
	}
	for sweep := range sweeps {
		for i := range layers {
			layer, neighbours := layers[i], func(n *node) []*node { return n.after }
			if sweep%2 == 1 {
				layer, neighbours = layers[len(layers)-1-i], func(n *node) []*node { return children[n] }
			}
			means := map[*node]float64{}
			for _, n := range layer {
				means[n] = n.place
				if near := neighbours(n); len(near) > 0 {
					sum := 0.0
					for _, other := range near {
						sum += other.place
					}
					means[n] = sum / float64(len(near))
				}
			}
			slices.SortStableFunc(layer, func(a, b *node) int {
				switch {
				case means[a] < means[b]:
					return -1
				case means[a] > means[b]:
					return 1
				}
				return 0
			})
			number(layer)
		}
	}
}

func cutRunes(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
