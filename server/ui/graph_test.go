package ui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAGraphHasEveryNodeBehindItsParentsAndNoTwoInOnePlace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := make([]*node, rapid.IntRange(1, 60).Draw(rt, "nodes"))
		for i := range nodes {
			nodes[i] = &node{Title: fmt.Sprint(i)}
			for range min(i, rapid.IntRange(0, 3).Draw(rt, "parents")) {
				nodes[i].after = append(nodes[i].after, nodes[rapid.IntRange(0, i-1).Draw(rt, "parent")])
			}
		}
		parents := map[*node][]*node{}
		for _, n := range nodes {
			parents[n] = slices.Clone(n.after)
		}
		g := draw(nodes)
		taken := map[[2]int]bool{}
		for _, n := range g.Nodes {
			for _, p := range parents[n] {
				if p.X >= n.X {
					rt.Fatalf("%s is not behind %s", n.Title, p.Title)
				}
			}
			at := [2]int{n.X, n.Y}
			if taken[at] || n.X < 0 || n.Y < 0 || n.X+g.NodeWidth > g.Width || n.Y+nodeHeight > g.Height {
				rt.Fatalf("%s is at %v of %dx%d", n.Title, at, g.Width, g.Height)
			}
			taken[at] = true
		}
	})
}

func TestACycleIsDrawnAllTheSame(t *testing.T) {
	a, b := &node{Title: "a"}, &node{Title: "b"}
	a.after, b.after = []*node{b}, []*node{a}
	if g := draw([]*node{a, b, {Title: "c"}}); len(g.Nodes) != 3 || len(g.Edges) != 2 {
		t.Error(g)
	}
}

func TestEdgesDoNotCrossWhereTheyNeedNot(t *testing.T) {
	a, b := &node{Title: "a"}, &node{Title: "b"}
	x, y := &node{Title: "x", after: []*node{b}}, &node{Title: "y", after: []*node{a}}
	draw([]*node{a, b, x, y})
	if (a.Y < b.Y) != (y.Y < x.Y) {
		t.Error(a.Y, b.Y, x.Y, y.Y)
	}
}

func TestALongEdgePassesBetweenBoxes(t *testing.T) {
	a, b := &node{Title: "a"}, &node{Title: "b"}
	b.after = []*node{a}
	c := &node{Title: "c", after: []*node{a, b}}
	g := draw([]*node{a, b, c})
	if len(g.Edges) != 3 || b.X == c.X || !strings.Contains(g.Edges[1].Path, "H") {
		t.Error(g.Edges)
	}
	bend := c.after[0]
	if !bend.bend || bend.Y == b.Y {
		t.Error("the edge lies behind a box")
	}
}
