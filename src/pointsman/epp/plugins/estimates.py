"""The parameters of `token-producer.estimate`, in llm-d's words, and what they mean."""

from typing import Literal

from pydantic import Field

from pointsman.epp.plugins.api import Parameters
from pointsman.epp.request.estimate import Estimates, ImageEstimate, VideoEstimate


class Resolution(Parameters):
    """The size of an image or frame that is not known."""

    width: int = Field(default=640, ge=1)
    height: int = Field(default=360, ge=1)


class DynamicImage(Parameters):
    """Tokens by size."""

    factor: int = Field(default=1024, ge=1)


class StaticImage(Parameters):
    """The same number for every image."""

    static_token: int = Field(default=0, ge=0)


class ImageParameters(Parameters):
    """The tokens of an image."""

    mode: Literal["dynamic", "static"] = "dynamic"
    default_resolution: Resolution = Resolution()
    dynamic: DynamicImage = DynamicImage()
    static: StaticImage = StaticImage()


class StaticFrame(Parameters):
    """The same number for every frame."""

    num_tokens_per_frame: int = Field(default=0, ge=0)


class FrameParameters(Parameters):
    """The tokens of a frame."""

    mode: Literal["dynamic", "static"] = "dynamic"
    dynamic: DynamicImage = DynamicImage()
    static: StaticFrame = StaticFrame()


class SampledFrames(Parameters):
    """So many frames a second, some of them merged."""

    sample_fps: float = Field(default=1.0, gt=0, alias="sampleFPS")
    temporal_patch_size: int = Field(default=0, ge=0)


class StridedFrames(Parameters):
    """Every so many-th frame."""

    default_source_fps: float = Field(default=24.0, gt=0, alias="defaultSourceFPS")
    frame_stride: int = Field(default=1, ge=1)


class FramesParameters(Parameters):
    """The number of frames."""

    mode: Literal["sampled", "strided"] = "sampled"
    min_frames: int = Field(default=0, ge=0)
    max_frames: int = Field(default=0, ge=0)
    sampled: SampledFrames = SampledFrames()
    strided: StridedFrames = StridedFrames()


class VideoParameters(Parameters):
    """The tokens of a video."""

    tokens_per_frame: FrameParameters = FrameParameters()
    frames: FramesParameters = FramesParameters()
    default_resolution: Resolution = Resolution()
    default_duration: float = Field(default=10.0, gt=0)
    max_video_tokens: int = Field(default=0, ge=0)


class EstimateBackend(Parameters):
    """Text as four bytes a token, media by size and length."""

    image: ImageParameters = ImageParameters()
    video: VideoParameters = VideoParameters()

    def estimates(self) -> Estimates:
        """Return what is estimated by."""
        image, video = self.image, self.video
        frame, frames = video.tokens_per_frame, video.frames
        return Estimates(
            image=ImageEstimate(
                mode=image.mode,
                width=image.default_resolution.width,
                height=image.default_resolution.height,
                factor=image.dynamic.factor,
                fixed=image.static.static_token,
            ),
            video=VideoEstimate(
                frame=ImageEstimate(
                    mode=frame.mode,
                    width=video.default_resolution.width,
                    height=video.default_resolution.height,
                    factor=frame.dynamic.factor,
                    fixed=frame.static.num_tokens_per_frame,
                ),
                mode=frames.mode,
                least_frames=frames.min_frames,
                most_frames=frames.max_frames,
                sample_fps=frames.sampled.sample_fps,
                merged=frames.sampled.temporal_patch_size,
                source_fps=frames.strided.default_source_fps,
                stride=frames.strided.frame_stride,
                seconds=video.default_duration,
                most_tokens=video.max_video_tokens,
            ),
        )
