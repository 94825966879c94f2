package history_test

import (
	"slices"
	"testing"

	"github.com/flue-go/flue/model"
	"github.com/flue-go/flue/model/internal/history"
)

func TestOrderTools(t *testing.T) {
	messages := []model.Message{say(model.RoleUser, "a"), calls("1", "2"), results("1", "x", "2", "y"), calls("3"), results("3", "z")}
	tests := []struct {
		name  string
		tools []model.Tool
		want  []string
	}{
		{"all from the start", []model.Tool{{Name: "b"}, {Name: "a"}}, []string{"b", "a"}},
		{"a later one in the middle", []model.Tool{{Name: "a"}, {Name: "late", After: "1"}, {Name: "b"}}, []string{"a", "b", "late"}},
		{"in the order of results", []model.Tool{{Name: "third", After: "3"}, {Name: "second", After: "2"}, {Name: "a"}, {Name: "first", After: "1"}}, []string{"a", "first", "second", "third"}},
		{"one result, two tools", []model.Tool{{Name: "d", After: "2"}, {Name: "c", After: "2"}}, []string{"d", "c"}},
		{"a result that is gone", []model.Tool{{Name: "late", After: "1"}, {Name: "gone", After: "0"}, {Name: "a"}}, []string{"a", "gone", "late"}},
		{"none", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			names := func(tools []model.Tool) (names []string) {
				for _, tool := range tools {
					names = append(names, tool.Name)
				}
				return names
			}
			before := names(tt.tools)
			if got := names(history.OrderTools(tt.tools, messages)); !slices.Equal(got, tt.want) {
				t.Errorf("order %q, want %q", got, tt.want)
			}
			if after := names(tt.tools); !slices.Equal(before, after) {
				t.Errorf("the tools given were changed to %q", after)
			}
		})
	}
}
