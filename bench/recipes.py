"""How the reference models are trained: batch, loss and optimizer, named as mpc names them. Needs no PyTorch."""

RECIPES = {
    "linear": {"batch": 32, "optimizer": "adam", "lr": 1e-3, "loss": "mse"},
    "mlp": {"batch": 64, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9},
    "mlp_ln": {"batch": 64, "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "fashion_cnn": {"batch": 64, "optimizer": "adam", "lr": 1e-3},
    "simple_cnn": {"batch": 64, "optimizer": "adam", "lr": 1e-3},
    "resnet18_cifar": {"batch": 32, "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
    "bert_tiny": {"batch": 16, "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "gpt_tiny": {"batch": 8, "optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01},
}
