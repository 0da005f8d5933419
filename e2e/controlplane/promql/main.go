// Reads queries as JSON strings, one a line, and writes for each what Prometheus' own parser says of it:
// the tree without parentheses, and the selectors in it, or the error.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

type answer struct {
	Tree      string   `json:"tree"`
	Selectors []string `json:"selectors"`
	Error     string   `json:"error"`
}

// bare returns the expression without its parentheses: for two queries that mean the same, they are equal texts.
func bare(expr parser.Expr) parser.Expr {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return bare(e.Expr)
	case *parser.BinaryExpr:
		// What the printer leaves out, so that a + b * c and (a + b) * c differ.
		e.LHS, e.RHS = &parser.ParenExpr{Expr: bare(e.LHS)}, &parser.ParenExpr{Expr: bare(e.RHS)}
	case *parser.UnaryExpr:
		e.Expr = &parser.ParenExpr{Expr: bare(e.Expr)}
	case *parser.AggregateExpr:
		e.Expr = bare(e.Expr)
		if e.Param != nil {
			e.Param = bare(e.Param)
		}
	case *parser.SubqueryExpr:
		e.Expr = &parser.ParenExpr{Expr: bare(e.Expr)}
	case *parser.Call:
		for i, arg := range e.Args {
			e.Args[i] = bare(arg)
		}
	}
	return expr
}

func main() {
	parse := parser.NewParser(parser.Options{
		EnableExperimentalFunctions:  true,
		ExperimentalDurationExpr:     true,
		EnableExtendedRangeSelectors: true,
		EnableBinopFillModifiers:     true,
	})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var query string
		if err := json.Unmarshal(lines.Bytes(), &query); err != nil {
			panic(err)
		}
		found := answer{Selectors: []string{}}
		expr, err := parse.ParseExpr(query)
		if err != nil {
			found.Error = err.Error()
		} else {
			found.Tree = bare(expr).String()
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				if selector, ok := node.(*parser.VectorSelector); ok {
					found.Selectors = append(found.Selectors, selector.String())
				}
				return nil
			})
		}
		if err := out.Encode(found); err != nil {
			panic(err)
		}
	}
}
