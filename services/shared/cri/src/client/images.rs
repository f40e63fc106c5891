use polylet_wire::runtime::v1;

use super::{CriCall, RuntimeClient, call_span, ignore_not_found};
use crate::CriError;

impl RuntimeClient {
    /// Lists the images that match `filter`.
    pub async fn list_images(
        &self,
        filter: Option<v1::ImageFilter>,
    ) -> Result<Vec<v1::Image>, CriError> {
        let mut client = self.image_service();
        let response = CriCall {
            server: &self.address,
            name: "ListImages",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ListImages"),
        }
        .run(v1::ListImagesRequest { filter }, async |r| {
            client.list_images(r).await
        })
        .await?;
        Ok(response.images)
    }

    /// The status of an image; `None` if it is not present.
    pub async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CriError> {
        let name = image.image.clone();
        let request = v1::ImageStatusRequest {
            image: Some(image),
            verbose: false,
        };
        let mut client = self.image_service();
        let response = CriCall {
            server: &self.address,
            name: "ImageStatus",
            id: &name,
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ImageStatus", container.image.name = %name),
        }
        .run(request, async |r| client.image_status(r).await)
        .await;
        match response {
            Ok(response) => Ok(response.image),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Pulls an image and returns the reference for creating containers. There is no deadline; dropping
    /// the future cancels the pull.
    pub async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CriError> {
        let name = image.image.clone();
        let span =
            call_span!(changes "cri.PullImage" of self.context, container.image.name = %name);
        let request = v1::PullImageRequest {
            image: Some(image),
            auth,
            sandbox_config,
        };
        let mut client = self.image_service();
        let response = CriCall {
            server: &self.address,
            name: "PullImage",
            id: &name,
            timeout: None,
            span,
        }
        .run(request, async |r| client.pull_image(r).await)
        .await?;
        Ok(response.image_ref)
    }

    /// Removes an image with all its names. A missing image is a success.
    pub async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), CriError> {
        let name = image.image.clone();
        let mut client = self.image_service();
        let result = CriCall {
            server: &self.address,
            name: "RemoveImage",
            id: &name,
            timeout: Some(self.timeout),
            span: call_span!(changes "cri.RemoveImage", container.image.name = %name),
        }
        .run(v1::RemoveImageRequest { image: Some(image) }, async |r| {
            client.remove_image(r).await
        })
        .await;
        ignore_not_found(result.map(drop))
    }

    /// The file systems of images and writable layers.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, CriError> {
        let mut client = self.image_service();
        CriCall {
            server: &self.address,
            name: "ImageFsInfo",
            id: "",
            timeout: Some(self.timeout),
            span: call_span!(reads "cri.ImageFsInfo"),
        }
        .run(v1::ImageFsInfoRequest {}, async |r| {
            client.image_fs_info(r).await
        })
        .await
    }
}
