"""The built-in networks on images as modules of PyTorch, with torchvision's names of parameters and its order of operations."""
import torch
from torch import nn


class Basic(nn.Module):
    """Two convolutions of 3 x 3 and a shortcut (He et al. 2016, figure 2)."""
    widening = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(channels, width, stride)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1; the second one strides, as in torchvision."""
    widening = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels, 4 * width, stride)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def shortcut(channels, out, stride):
    if stride == 1 and channels == out:
        return None
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class ResNet(nn.Module):
    """images: for ImageNet, with a convolution of 7 x 7 and a pool in front; otherwise for CIFAR-10."""

    def __init__(self, block, blocks, width=64, classes=1000, images=True):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False) if images else nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if images else None
        channels, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(block(channels, width << stage, 2 if stage > 0 and i == 0 else 1))
                channels = block.widening * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = x if self.maxpool is None else self.maxpool(x)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def conv_norm(channels, out, kernel=3, stride=1, groups=1):
    """A convolution, its batch norm and ReLU6."""
    conv = nn.Conv2d(channels, out, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, channels, out, stride, factor):
        super().__init__()
        wide = factor * channels
        layers = [conv_norm(channels, wide, 1)] if factor > 1 else []
        self.conv = nn.Sequential(*layers, conv_norm(wide, wide, 3, stride, wide), nn.Conv2d(wide, out, 1, bias=False),
                                  nn.BatchNorm2d(out))
        self.adds = stride == 1 and channels == out

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [conv_norm(3, 32, stride=2)], 32
        for factor, out, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                           (6, 160, 3, 2), (6, 320, 1, 1)):
            for i in range(count):
                layers.append(InvertedResidual(channels, out, stride if i == 0 else 1, factor))
                channels = out
        self.features = nn.Sequential(*layers, conv_norm(channels, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


class VGG16(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for out in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
            layers += [nn.MaxPool2d(2, 2)] if out == 0 else [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True)]
            channels = out or channels
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 4096),
                                        nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1000))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


MODELS = {"resnet18": (lambda: ResNet(Basic, (2, 2, 2, 2)), 224), "resnet50": (lambda: ResNet(Bottleneck, (3, 4, 6, 3)), 224),
          "mobilenetv2": (MobileNetV2, 224), "vgg16": (VGG16, 224),
          "resnet20": (lambda: ResNet(Basic, (3, 3, 3), 16, 10, False), 32)}
