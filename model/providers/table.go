package providers

import "github.com/flue-go/flue/model/openai"

// table returns the services that are known by name. docs/models.md has the same
// table for people, and a test holds them together.
func table() []Service {
	return []Service{
		{
			Name: "amazon-bedrock", Title: "Amazon Bedrock",
			Reason: "it is a module of its own: add github.com/flue-go/flue/model/bedrock to the program and its provider to Config.Providers",
		},
		{
			Name: "anthropic", Title: "Anthropic", API: Anthropic, BaseURL: "https://api.anthropic.com",
			Keys: []string{"ANTHROPIC_API_KEY"}, BaseURLs: []string{"ANTHROPIC_BASE_URL"},
		},
		{
			Name: "azure-openai", Title: "Azure OpenAI", API: OpenAIResponses,
			Keys: []string{"AZURE_OPENAI_API_KEY"}, BaseURLs: []string{"AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"},
		},
		{
			Name: "cerebras", Title: "Cerebras", API: OpenAI, BaseURL: "https://api.cerebras.ai/v1", Server: openai.ServerCerebras,
			Keys: []string{"CEREBRAS_API_KEY"},
		},
		{
			Name: "deepseek", Title: "DeepSeek", API: OpenAI, BaseURL: "https://api.deepseek.com", Server: openai.ServerDeepSeek,
			Keys: []string{"DEEPSEEK_API_KEY"},
		},
		{
			Name: "fireworks", Title: "Fireworks", API: OpenAI, BaseURL: "https://api.fireworks.ai/inference/v1", Server: openai.ServerFireworks,
			Keys: []string{"FIREWORKS_API_KEY"},
		},
		{
			Name: "google", Title: "Google Gemini", API: Google, BaseURL: "https://generativelanguage.googleapis.com/v1beta",
			Keys: []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
		},
		{
			Name: "google-vertex", Title: "Google Vertex AI", API: GoogleVertex,
			Keys: []string{"GOOGLE_CLOUD_PROJECT"},
		},
		{
			Name: "groq", Title: "Groq", API: OpenAI, BaseURL: "https://api.groq.com/openai/v1", Server: openai.ServerGroq,
			Keys: []string{"GROQ_API_KEY"},
		},
		{
			Name: "lmstudio", Title: "LM Studio", API: OpenAI, BaseURL: "http://127.0.0.1:1234/v1", Server: openai.ServerLMStudio,
			Local: true, BaseURLs: []string{"LMSTUDIO_BASE_URL"},
		},
		{
			Name: "mistral", Title: "Mistral", API: OpenAI, BaseURL: "https://api.mistral.ai/v1", Server: openai.ServerMistral,
			Keys: []string{"MISTRAL_API_KEY"},
		},
		{
			Name: "moonshot", Title: "Moonshot (Kimi)", API: OpenAI, BaseURL: "https://api.moonshot.ai/v1", Server: openai.ServerMoonshot,
			Keys: []string{"MOONSHOT_API_KEY"},
		},
		{
			Name: "ollama", Title: "Ollama", API: OpenAI, BaseURL: "http://127.0.0.1:11434/v1", Server: openai.ServerOllama,
			Local: true, Keys: []string{"OLLAMA_API_KEY"}, BaseURLs: []string{"OLLAMA_HOST"},
		},
		{
			Name: "openai", Title: "OpenAI", API: OpenAIResponses, BaseURL: "https://api.openai.com/v1",
			Keys: []string{"OPENAI_API_KEY"}, BaseURLs: []string{"OPENAI_BASE_URL"},
		},
		{
			Name: "openrouter", Title: "OpenRouter", API: OpenAI, BaseURL: "https://openrouter.ai/api/v1", Server: openai.ServerOpenRouter,
			Keys: []string{"OPENROUTER_API_KEY"},
		},
		{
			Name: "together", Title: "Together AI", API: OpenAI, BaseURL: "https://api.together.ai/v1", Server: openai.ServerTogether,
			Keys: []string{"TOGETHER_API_KEY"},
		},
		{
			Name: "vllm", Title: "vLLM", API: OpenAI, BaseURL: "http://127.0.0.1:8000/v1", Server: openai.ServerVLLM,
			Local: true, Keys: []string{"VLLM_API_KEY"}, BaseURLs: []string{"VLLM_BASE_URL"},
		},
		{
			Name: "xai", Title: "xAI", API: OpenAI, BaseURL: "https://api.x.ai/v1", Server: openai.ServerXAI,
			Keys: []string{"XAI_API_KEY"},
		},
	}
}
