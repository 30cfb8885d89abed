"""A model of the bench as files, so that programs without PyTorch can train it.

    case = Case("mlp", folder)      # exports the model, saves its batch
    case.onnx, case.inputs, case.labels
"""

import json
from pathlib import Path

import numpy as np
from models import MODELS

ORT_OPSET = 15  # ONNX Runtime's last training release differentiates no LayerNormalization node


class Case:
    def __init__(self, name, folder):
        self.name, self.spec, self.folder = name, MODELS[name], Path(folder) / name
        self.folder.mkdir()
        self.onnx = self.folder / "model.onnx"
        self.spec.export(self.onnx)
        inputs, labels = self.spec.batch_data()
        self.inputs = {key: self._save(key, value) for key, value in zip(self.spec.inputs, inputs)}
        self.labels = self._save("labels", labels)

    def _save(self, key, tensor):
        file = self.folder / f"{key}.npy"
        np.save(file, tensor.numpy())
        return file

    def for_ort(self):
        """The JSON file that peer_ort.py reads, made at the first call."""
        file = self.folder / "ort.json"
        if not file.exists():
            onnx = self.folder / "ort.onnx"
            self.spec.export(onnx, opset=ORT_OPSET)
            parameters = [name for name, _ in self.spec.build().named_parameters()]
            file.write_text(json.dumps({
                "onnx": str(onnx), "inputs": [str(i) for i in self.inputs.values()], "labels": str(self.labels),
                "parameters": parameters, "loss": self.spec.loss, "optimizer": self.spec.optimizer}))
        return file
