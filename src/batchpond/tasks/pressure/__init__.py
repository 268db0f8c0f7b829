"""The pressure task: conversations that try to change a model's mind."""
