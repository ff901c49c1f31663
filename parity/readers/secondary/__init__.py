"""Results by item, task or layer: accuracy, lm-evaluation-harness, quantization SNR."""
