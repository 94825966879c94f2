package modeltest

import (
	"encoding/json"

	"github.com/flue-go/flue/model"
)

// pixel is a PNG of one pixel.
var pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89" +
	"\x00\x00\x00\rIDATx\xdac\xfc\xff\x9f\xa1\x1e\x00\x07\x82\x02\x7f=\xc8H\xef\x00\x00\x00\x00IEND\xaeB`\x82")

// Conversation returns a request that holds something of everything a history
// can hold when nothing went wrong: text, an image, reasoning, parallel calls, a
// failed call, an answer of another model, and messages that must share a turn.
// The reasoning of the answer by own carries opaque. It is meant for golden
// files of what a provider sends; each call returns a fresh value.
func Conversation(own model.Origin, opaque json.RawMessage) *model.Request {
	other := model.Origin{Provider: "elsewhere", Model: "other-model"}
	return &model.Request{
		Model:  own.Model,
		System: "Help customers check the status of their orders.\nBe brief & polite.",
		Messages: []model.Message{
			{Role: model.RoleUser, Blocks: []model.Block{
				{Kind: model.Text, Text: "Where are ORD-1 and ORD-2? <urgent>"},
				{Kind: model.Image, MediaType: "image/png", Data: pixel},
			}},
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "Two orders, two lookups.", Opaque: opaque},
				{Kind: model.Text, Text: "Let me check both."},
				{Kind: model.ToolCall, CallID: "call_1", Name: "lookup_order", Arguments: `{"orderId": "ORD-1"}`},
				{Kind: model.ToolCall, CallID: "call_2", Name: "lookup_order", Arguments: `{"orderId": "ORD-2"}`},
			}},
			{Role: model.RoleTool, Blocks: []model.Block{
				{Kind: model.ToolResult, CallID: "call_1", Text: `{"status":"shipped"}`},
				{Kind: model.ToolResult, CallID: "call_2", Text: "order service down", IsError: true},
			}},
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "<signal type=\"note\">The service is back.</signal>"}}},
			{Role: model.RoleAssistant, Origin: other, Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "Another model thinks.", Opaque: json.RawMessage(`{"foreign":"signature"}`)},
				{Kind: model.ToolCall, CallID: "call_3", Name: "now"},
			}},
			{Role: model.RoleTool, Blocks: []model.Block{{Kind: model.ToolResult, CallID: "call_3", Text: "12:00"}}},
			{Role: model.RoleAssistant, Origin: other, Blocks: []model.Block{{Kind: model.Text, Text: "ORD-1 has shipped."}}},
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "And ORD-2?"}}},
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Please hurry."}}},
		},
		Tools: []model.Tool{
			{Name: "lookup_order", Description: "Look up one order by id.", Schema: json.RawMessage(`{"type":"object","properties":{"orderId":{"type":"string"}},"required":["orderId"],"additionalProperties":false}`)},
			{Name: "now", Description: "The time.", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
		},
		CacheKey: "01M8N3QQ942M5NJKBDXFKNWEQ9",
	}
}

// Unlocked returns a request of a conversation in which a tool call has brought
// in a tool: publish_release came with the result of call_2, which shares its
// message with the result of another call. It is declared between the tools
// that were there before. Each call returns a fresh value.
func Unlocked(own model.Origin) *model.Request {
	return &model.Request{
		Model:  own.Model,
		System: "Release what has been approved.",
		Messages: []model.Message{
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Version 2 is approved, release it."}}},
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{
				{Kind: model.ToolCall, CallID: "call_1", Name: "now"},
				{Kind: model.ToolCall, CallID: "call_2", Name: "record_approval", Arguments: `{"version":2}`},
				{Kind: model.ToolCall, CallID: "call_3", Name: "record_approval", Arguments: `{"version":"two"}`},
			}},
			{Role: model.RoleTool, Blocks: []model.Block{
				{Kind: model.ToolResult, CallID: "call_1", Text: "12:00"},
				{Kind: model.ToolResult, CallID: "call_2", Text: "Version 2 is recorded as approved."},
				{Kind: model.ToolResult, CallID: "call_3", Text: "version is no number", IsError: true},
			}},
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: "Go on."}}},
		},
		Tools: []model.Tool{
			{Name: "record_approval", Description: "Record that a version is approved.", Schema: json.RawMessage(`{"type":"object","properties":{"version":{"type":"integer"}},"required":["version"]}`)},
			{Name: "publish_release", Description: "Publish an approved version.", Schema: json.RawMessage(`{"type":"object","properties":{"channel":{"type":"string"}}}`), After: "call_2"},
			{Name: "now", Description: "The time.", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
		},
		CacheKey: "01M8N3QQ942M5NJKBDXFKNWEQ9",
		Info:     model.Info{DeferredTools: true},
	}
}

// Damaged returns a request whose history has every flaw for which providers
// refuse a request. A provider must send it in a form without them.
func Damaged(own model.Origin) *model.Request {
	return &model.Request{
		Model: own.Model,
		Messages: []model.Message{
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{{Kind: model.Text, Text: "The conversation begins with an answer."}}},
			{Role: model.RoleUser, Blocks: []model.Block{
				{Kind: model.Text, Text: "  "},
				{Kind: model.Text, Text: "half a character: \xed\xa0\xbd, no text: \xff"},
				{Kind: model.Image, MediaType: "image/svg+xml", Data: []byte("<svg/>")},
				{Kind: model.Image, MediaType: "image/jpeg", Data: pixel},
			}},
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{
				{Kind: model.Reasoning, Text: "A stream was cut in the middle of this"},
				{Kind: model.Text, Text: "\n"},
				{Kind: model.ToolCall, CallID: "functions.weird name:0", Name: "not a.name", Arguments: `{"s":"\ud83d"}`},
				{Kind: model.ToolCall, CallID: "call_cut", Name: "write", Arguments: `{"path":"a.txt","content":"hel`},
				{Kind: model.ToolCall, CallID: "call_blank", Name: "now", Arguments: " "},
				{Kind: model.ToolCall, CallID: "call_list", Name: "now", Arguments: `[1,2]`},
				{Kind: model.ToolCall, CallID: "call_control", Name: "now", Arguments: "{\"cmd\":\"a\x07b\"}"},
			}},
			{Role: model.RoleTool, Blocks: []model.Block{
				{Kind: model.ToolResult, CallID: "call_blank", Text: ""},
				{Kind: model.ToolResult, CallID: "call_cut", Text: "The arguments were cut off.", IsError: true},
				{Kind: model.ToolResult, CallID: "functions.weird name:0", Text: "no such tool", IsError: true},
				{Kind: model.ToolResult, CallID: "call_unknown", Text: "nobody asked"},
			}},
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{{Kind: model.Text, Text: " "}, {Kind: model.Reasoning, Text: "nothing to say"}}},
			{Role: model.RoleUser, Blocks: []model.Block{{Kind: model.Text, Text: ""}}},
			{Role: model.RoleAssistant, Origin: own, Blocks: []model.Block{{Kind: model.Text, Text: "The conversation ends with an answer."}}},
		},
		Tools: []model.Tool{
			{Name: "now", Schema: nil},
			{Name: "write", Schema: json.RawMessage(`{"type":"object","description":"half: \ud83d"}`)},
		},
	}
}
