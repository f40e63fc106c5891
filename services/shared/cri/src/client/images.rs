use polylet_wire::runtime::v1;

use super::{Call, Runtime, call_span, gone_is_done};
use crate::CriError;

impl Runtime {
    /// All images, or those that `filter` names.
    pub async fn list_images(
        &self,
        filter: Option<v1::ImageFilter>,
    ) -> Result<Vec<v1::Image>, CriError> {
        let mut client = self.image_service();
        let answer = Call {
            name: "ListImages",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ListImages"),
        }
        .run(v1::ListImagesRequest { filter }, async |r| {
            client.list_images(r).await
        })
        .await?;
        Ok(answer.images)
    }

    /// One image, or none when it is not there.
    pub async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CriError> {
        let name = image.image.clone();
        let request = v1::ImageStatusRequest {
            image: Some(image),
            verbose: false,
        };
        let mut client = self.image_service();
        let answer = Call {
            name: "ImageStatus",
            id: &name,
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ImageStatus", image = %name),
        }
        .run(request, async |r| client.image_status(r).await)
        .await;
        match answer {
            Ok(answer) => Ok(answer.image),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Pulls an image and returns the reference that containers are made from. No deadline: it
    /// takes as long as it takes, and dropping the future cancels it.
    pub async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CriError> {
        let name = image.image.clone();
        let span = call_span!(changes "cri.PullImage" of self.about, image = %name);
        let request = v1::PullImageRequest {
            image: Some(image),
            auth,
            sandbox_config,
        };
        let mut client = self.image_service();
        let answer = Call {
            name: "PullImage",
            id: &name,
            limit: None,
            span,
        }
        .run(request, async |r| client.pull_image(r).await)
        .await?;
        Ok(answer.image_ref)
    }

    /// Removes an image with all its names; one that is gone is fine.
    pub async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), CriError> {
        let name = image.image.clone();
        let mut client = self.image_service();
        let result = Call {
            name: "RemoveImage",
            id: &name,
            limit: Some(self.timeout),
            span: call_span!(changes "cri.RemoveImage", image = %name),
        }
        .run(v1::RemoveImageRequest { image: Some(image) }, async |r| {
            client.remove_image(r).await
        })
        .await;
        gone_is_done(result.map(drop))
    }

    /// The file systems of images and of writable layers.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CriError> {
        let mut client = self.image_service();
        Call {
            name: "ImageFsInfo",
            id: "",
            limit: Some(self.timeout),
            span: call_span!(reads "cri.ImageFsInfo"),
        }
        .run(v1::ImageFsInfoRequest {}, async |r| {
            client.image_fs_info(r).await
        })
        .await
    }
}
