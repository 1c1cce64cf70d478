package ui

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// graph is a picture of nodes in layers, from left to right. Each node comes after the ones it depends on.
type graph struct {
	Width, Height int
	NodeWidth     int // the same for all; room for the longest title, up to a maximum
	Nodes         []*node
	Edges         []edge
}

// node is a box with two lines of text.
type node struct {
	Title, Sub string // cut to fit
	Class, To  string
	X, Y       int

	after []*node
	layer int
	place float64 // position within its layer, while it is computed
	bend  bool    // not a box: an edge passes here
}

type edge struct{ Path, Class string }

const (
	leastWidth, mostWidth = 160, 280
	nodeHeight            = 46
	runeWidth, boxPadding = 8, 24 // of a title, approximately
	layerGap, rowGap      = 44, 14
	margin                = 6
	sweeps                = 6
)

// MaxDrawn is the largest number of nodes in a graph. The table shows the rest.
const MaxDrawn = 200

// draw positions the nodes. A node comes after those in its after list.
func draw(nodes []*node) *graph {
	g := &graph{Nodes: nodes}
	layers := layersOf(nodes)
	ways := bendsOf(nodes, layers)
	longest := 0
	for _, n := range nodes {
		longest = max(longest, utf8.RuneCountInString(n.Title), utf8.RuneCountInString(n.Sub)-3)
	}
	g.NodeWidth = min(max(longest*runeWidth+boxPadding, leastWidth), mostWidth)
	titleRunes := (g.NodeWidth - boxPadding) / runeWidth
	arrange(layers)
	rows := 0
	for _, layer := range layers {
		rows = max(rows, len(layer))
	}
	for x, layer := range layers {
		top := margin + (rows-len(layer))*(nodeHeight+rowGap)/2
		for y, n := range layer {
			n.X, n.Y = margin+x*(g.NodeWidth+layerGap), top+y*(nodeHeight+rowGap)
			n.Title, n.Sub = cutRunes(n.Title, titleRunes), cutRunes(n.Sub, titleRunes+3)
		}
	}
	g.Width = 2*margin + len(layers)*g.NodeWidth + max(len(layers)-1, 0)*layerGap
	g.Height = 2*margin + rows*nodeHeight + max(rows-1, 0)*rowGap
	for _, w := range ways {
		g.Edges = append(g.Edges, edge{w.path(g.NodeWidth), w.from.Class})
	}
	return g
}

// way is an edge with the positions through which it passes.
type way struct {
	from, to *node
	bends    []*node
}

// bendsOf gives an edge that spans several layers a position in each of them, so that it passes between boxes and not
// behind them. In after, these positions replace the node.
func bendsOf(nodes []*node, layers [][]*node) (ways []way) {
	for _, n := range nodes {
		for i, p := range n.after {
			w := way{from: p, to: n}
			for before, at := p, p.layer+1; at < n.layer; at++ {
				b := &node{bend: true, layer: at, after: []*node{before}}
				layers[at] = append(layers[at], b)
				w.bends = append(w.bends, b)
				before, n.after[i] = b, b
			}
			ways = append(ways, w)
		}
	}
	return ways
}

// path returns the edge as an SVG path: curves between layers, straight lines through them.
func (w way) path(nodeWidth int) string {
	x, y := w.from.X+nodeWidth, w.from.Y+nodeHeight/2
	path := fmt.Sprintf("M%d %d", x, y)
	for _, n := range append(w.bends, w.to) {
		x2, y2 := n.X, n.Y+nodeHeight/2
		turn := max((x2-x)/2, layerGap/2)
		if n == w.to {
			x2 -= 4 // room for the arrow
		}
		path += fmt.Sprintf("C%d %d %d %d %d %d", x+turn, y, x2-turn, y2, x2, y2)
		if x, y = x2, y2; n.bend {
			x += nodeWidth
			path += fmt.Sprintf("H%d", x)
		}
	}
	return path
}

// layersOf puts every node into a layer after all nodes that it depends on.
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
	var rest []*node // a cycle: no engine stores one, but a page must not hang on it
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

// arrange sorts each layer by the positions of its neighbours, back and forth, so that few edges cross.
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
